// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"regexp"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Policy holds the operator's options for the rules. The zero value is the rules of docs/design.md beside a Cluster API that does
// not propagate taints.
type Policy struct {
	// AdditionalLabels selects further Machine labels for the Node (rule 11); nothing is anchored, as in Cluster API.
	AdditionalLabels []*regexp.Regexp
	// AdditionalAnnotations selects further Machine annotations for the Node (rule 12).
	AdditionalAnnotations []*regexp.Regexp
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that objects must carry; empty means all.
	WatchFilter string
	// SkipNothing says that objects which are paused, opted out or being deleted inherit all the same: kubectl heirloom explain
	// shows what they would inherit.
	SkipNothing bool
	// PaceEviction says that the loop limits how fast taints which evict Pods reach existing Nodes.
	PaceEviction bool
	// ClusterAPITaints says whether Cluster API propagates taints itself.
	ClusterAPITaints TaintPropagation
}

// TaintPropagation is what is known about Cluster API's feature gate MachineTaintPropagation.
type TaintPropagation int

const (
	// PropagationUnknown holds until Cluster API could be asked. Typed taints of an owner propagate, because Cluster API must have
	// accepted them there.
	PropagationUnknown TaintPropagation = iota
	// PropagationEnabled means that Cluster API accepts spec.taints, propagates them to Nodes and tracks them in its form.
	PropagationEnabled
	// PropagationDisabled means that Cluster API refuses every object with spec.taints, or that its CRDs drop them.
	PropagationDisabled
)

// String returns the value of the flag --cluster-api-taint-propagation that stands for it.
func (t TaintPropagation) String() string {
	switch t {
	case PropagationEnabled:
		return "enabled"
	case PropagationDisabled:
		return "disabled"
	default:
		return "unknown"
	}
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

func matchesAny(regexes []*regexp.Regexp, key string) bool {
	return slices.ContainsFunc(regexes, func(r *regexp.Regexp) bool { return r.MatchString(key) })
}
