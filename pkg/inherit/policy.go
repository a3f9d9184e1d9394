// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"regexp"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Policy holds the operator's options for the rules. The zero value is the rules of docs/design.md while it is not known whether Cluster
// API propagates taints.
type Policy struct {
	// AdditionalLabels and AdditionalAnnotations select further keys of the Machine for the Node; the regexes are not anchored, as in
	// Cluster API.
	AdditionalLabels, AdditionalAnnotations []*regexp.Regexp

	WatchFilter      string           // the value of the label cluster.x-k8s.io/watch-filter that objects must carry; empty means all
	SkipNothing      bool             // also evaluate skipped objects, for kubectl heirloom explain
	PaceEviction     bool             // the loop limits in which order and at which rate existing Nodes get taints that evict Pods
	ClusterAPITaints TaintPropagation // whether Cluster API propagates taints itself
	Mode             Mode             // Observe writes in no Cluster, whatever its ModeLabel; empty means Enforce
	OnlyLabeled      bool             // Clusters without ModeLabel inherit nothing
	// SyncAllowed limits the keys that SyncLabelsAnnotation and SyncAnnotationsAnnotation may name: keys, prefixes that end with *, or
	// SyncAnyKey.
	SyncAllowed []string
	// WorkerRole is the role of worker Nodes, node-role.kubernetes.io/<role>; empty for none.
	WorkerRole string
	// Facts become labels of Nodes.
	Facts []Fact

	named map[string][]string // keys and prefixes of labels and annotations that the Cluster names (Of)
	facts map[string]Fact     // labels of the Node that are facts (naming)
}

// TaintPropagation is the known state of Cluster API's feature gate MachineTaintPropagation.
type TaintPropagation int

const (
	// PropagationUnknown says that Cluster API could not be asked yet. Typed taints of an owner propagate, because Cluster API must have
	// accepted them in the owner.
	PropagationUnknown TaintPropagation = iota
	// PropagationEnabled says that Cluster API accepts spec.taints, propagates them to Nodes and tracks them in its own form.
	PropagationEnabled
	// PropagationDisabled says that Cluster API refuses every object with spec.taints, or its CRDs drop them.
	PropagationDisabled
)

// String returns the value of the flag --cluster-api-taint-propagation for the state.
func (t TaintPropagation) String() string {
	return []string{PropagationUnknown: "unknown", PropagationEnabled: "enabled", PropagationDisabled: "disabled"}[t]
}

// typed returns the taints that may be propagated in spec.taints: none if Cluster API would refuse the object.
func (p Policy) typed(at place, role taint.Role, declared []clusterv1.MachineTaint) []clusterv1.MachineTaint {
	if p.ClusterAPITaints != PropagationDisabled {
		return at.usable(role, declared)
	}
	for _, t := range declared {
		at.drop(taintKey, taint.MachineID(t).String(), DropTaints, "", "")
	}
	return nil
}

// Outcome is the result of a decision about an object.
type Outcome int

const (
	// Skipped objects stay as they are; the decision says why.
	Skipped Outcome = iota
	// OwnerNotFound objects name an owner that does not exist or cannot own them. The declarations of the owner are not known, so the
	// objects stay as they are.
	OwnerNotFound
	// NoOwner objects get only the entries that they declare themselves. Entries that an owner propagated before stay until there is an
	// owner again, because a backup loses owner references and they come back later.
	NoOwner
	// Inherits objects get the desired entries, and lose all other entries of Heirloom.
	Inherits
)

// Decision says what happens to an object. The zero value leaves it as it is.
type Decision struct {
	Outcome Outcome
	Reason  Reason // why the object stays as it is
	// Observed says that the decision is only reported and not written.
	Observed bool
	// Desired is the content that the rules give to an object that is not skipped. Each entry is valid, but there may not be room for all
	// of them (Fit).
	Desired Object
	Dropped Drops // the entries that the rules considered and left out
	// TaintsRefused says that Cluster API refuses every write of an object that still has taints in its spec. Then none of Heirloom's
	// taints stay, even without an owner.
	TaintsRefused bool
}

// Skip returns the decision to leave an object as it is for this reason.
func Skip(why Reason) Decision { return Decision{Outcome: Skipped, Reason: why} }

// Untouched reports whether the object stays as it is, because it is skipped or its owner is not known.
func (d Decision) Untouched() bool { return d.Outcome == Skipped || d.Outcome == OwnerNotFound }

// Problems returns an error about the entries that may not reach the object, or nil.
func (d Decision) Problems() error { return d.Dropped.Problems() }

// Keeps reports whether an entry of Heirloom that is not desired stays in the object. Entries that an owner propagated stay while the
// object has no owner. The object's own data for cluster-autoscaler is removed.
func (d Decision) Keeps(e Entry) bool {
	return d.Outcome == NoOwner && !slices.Contains(CapacityAnnotations, e.Name) && (!d.TaintsRefused || e.What != taintKey)
}

// FromOwner reports whether Heirloom can have injected an entry only because an owner declares it. A Machine may also declare its
// taints itself, by annotation.
func (e Entry) FromOwner() bool {
	return !slices.Contains(CapacityAnnotations, e.Name) && (!e.Own || e.What != taintKey)
}
