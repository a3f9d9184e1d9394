// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"regexp"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Policy holds the operator's options for the rules. The zero value is the rules of docs/design.md with a Cluster
// API that does not propagate taints.
type Policy struct {
	// AdditionalLabels and AdditionalAnnotations select further keys of the Machine for the Node; nothing is anchored, as in Cluster API.
	AdditionalLabels, AdditionalAnnotations []*regexp.Regexp

	WatchFilter      string           // the value of the label cluster.x-k8s.io/watch-filter that objects must carry; empty means all
	SkipNothing      bool             // kubectl heirloom explain shows what objects would inherit that are skipped
	PaceEviction     bool             // the loop limits how fast taints which evict Pods reach existing Nodes
	ClusterAPITaints TaintPropagation // whether Cluster API propagates taints itself
	Mode             Mode             // of Clusters without ModeLabel; empty means Enforce
	OnlyLabelled     bool             // Clusters without ModeLabel inherit nothing
	// SyncAllowed bounds what SyncLabelsAnnotation and SyncAnnotationsAnnotation may name: keys, prefixes that end with *, or SyncAnyKey.
	SyncAllowed []string
	// WorkerRole is the role of Nodes of workers, node-role.kubernetes.io/<role>; empty for none.
	WorkerRole string
	// Facts become labels of Nodes.
	Facts []Fact

	ofCluster map[string]string   // the annotations of the Cluster (Of)
	named     map[string][]string // keys and prefixes of labels and annotations (naming)
	facts     map[string]Fact     // labels of the Node that are facts (naming)
}

// TaintPropagation is the known state of Cluster API's feature gate MachineTaintPropagation.
type TaintPropagation int

const (
	// PropagationUnknown says that Cluster API could not be asked yet. Typed taints of an owner propagate, since it must have accepted them there.
	PropagationUnknown TaintPropagation = iota
	// PropagationEnabled says that Cluster API accepts spec.taints, propagates them to Nodes and tracks them in its form.
	PropagationEnabled
	// PropagationDisabled says that Cluster API refuses every object with spec.taints, or its CRDs drop them.
	PropagationDisabled
)

// String returns the value of the flag --cluster-api-taint-propagation that stands for it.
func (t TaintPropagation) String() string {
	return []string{PropagationUnknown: "unknown", PropagationEnabled: "enabled", PropagationDisabled: "disabled"}[t]
}

// typed takes the taints that may be propagated in spec.taints: none if Cluster API would refuse the object.
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
	// OwnerNotFound objects name an owner that does not exist or cannot own them. What it declares is not known, so they stay as they are.
	OwnerNotFound
	// NoOwner objects get only what they declare themselves. What an owner propagated before stays until there is an owner again, because
	// a backup loses owner references and they come back later.
	NoOwner
	// Inherits says that of what Heirloom manages, the object gets what is desired and nothing else.
	Inherits
)

// Decision says what happens to an object. The zero value leaves it as it is.
type Decision struct {
	Outcome Outcome
	Reason  Reason // why an object stays as it is
	// Observed says that the decision is not carried out, only reported.
	Observed bool
	// Desired is what the rules give to an object that is not skipped. Each entry of it is valid; together they may have no room (Fit).
	Desired Object
	Dropped Drops // what the rules considered and left out
	// TaintsRefused says that Cluster API refuses every write of an object that still has taints in its spec. Then none of Heirloom's
	// taints stay, even without an owner.
	TaintsRefused bool
}

// Skip leaves an object as it is for this reason.
func Skip(why Reason) Decision { return Decision{Outcome: Skipped, Reason: why} }

// Untouched reports whether the object stays as it is, because it is skipped or its owner is not known.
func (d Decision) Untouched() bool { return d.Outcome == Skipped || d.Outcome == OwnerNotFound }

// Problems says what may not reach the object, and why.
func (d Decision) Problems() error { return d.Dropped.Problems() }

// Keeps reports whether an entry of Heirloom's that is not desired stays in the object. Entries that an owner propagated stay while
// no owner is known. The object's own data for cluster-autoscaler goes.
func (d Decision) Keeps(e Entry) bool {
	return d.Outcome == NoOwner && !slices.Contains(CapacityAnnotations, e.Name) && (!d.TaintsRefused || e.What != taintKey)
}

// FromOwner reports whether Heirloom can have injected an entry only because an owner declares it. A Machine may also declare its
// taints itself, by annotation.
func (e Entry) FromOwner() bool {
	return !slices.Contains(CapacityAnnotations, e.Name) && (!e.Own || e.What != taintKey)
}
