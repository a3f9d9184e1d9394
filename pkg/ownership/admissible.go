// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"maps"
	"slices"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// admissible leaves out of what is desired what an API server would refuse in the child, once what is stale has gone from it. old
// returns what the child had before an update; it is nil where there is none.
func (p *Plan) admissible(current, desired inherit.Object, old func() (inherit.Object, error)) (inherit.Object, error) {
	var unreadable error
	admitted, leftOut := inherit.Admissible(current, desired, func() inherit.Object {
		if desired.Orphan {
			return current // an orphan gives nothing up
		}
		before := current
		if old != nil {
			if known, err := old(); err == nil {
				before = known
			}
		}
		stays := inherit.Object{Top: both(p.notOnlyOurs(current.Layout.Top, current.Top, &unreadable), before.Top)}
		if current.Template != nil {
			template := both(p.notOnlyOurs(current.Layout.Template, *current.Template, &unreadable), ptr.Deref(before.Template, inherit.Content{}))
			stays.Template = &template
		}
		return stays
	})
	p.leftOut = leftOut
	return admitted, unreadable
}

// notOnlyOurs returns what stays in a child if it inherits nothing: annotations, taints and readiness gates, which share room
// with what is inherited.
func (p *Plan) notOnlyOurs(at capi.Paths, current inherit.Content, unreadable *error) inherit.Content {
	ours := map[string]bool{}
	only := func(at place) {
		for _, e := range at.among(p.managed.ours) {
			shared, err := p.managed.shared(at.pathTo(e))
			if err != nil {
				*unreadable = err
			}
			ours[e.name] = !shared
		}
	}
	var stays inherit.Content
	only(mapPlace(at.Metadata, "annotations", current.Annotations, nil))
	stays.Annotations = maps.Clone(current.Annotations)
	maps.DeleteFunc(stays.Annotations, func(key, _ string) bool { return ours[key] })
	clear(ours)
	only(taintPlace(at, current.Taints, nil, nil))
	stays.Taints = slices.DeleteFunc(slices.Clone(current.Taints), func(t clusterv1.MachineTaint) bool { return ours[taint.MachineID(t).String()] })
	clear(ours)
	only(gatePlace(at, current.Fields.ReadinessGates, nil))
	stays.Fields.ReadinessGates = slices.DeleteFunc(slices.Clone(current.Fields.ReadinessGates), func(gate clusterv1.MachineReadinessGate) bool {
		return ours[gate.ConditionType]
	})
	return stays
}

// both returns what is in both of two contents, as the second has it.
func both(stays, before inherit.Content) inherit.Content {
	annotations := maps.Clone(before.Annotations)
	maps.DeleteFunc(annotations, func(key, _ string) bool { _, still := stays.Annotations[key]; return !still })
	stay := map[any]bool{}
	for _, t := range stays.Taints {
		stay[taint.MachineID(t)] = true
	}
	for _, gate := range stays.Fields.ReadinessGates {
		stay[gate.ConditionType] = true
	}
	taints := slices.DeleteFunc(slices.Clone(before.Taints), func(t clusterv1.MachineTaint) bool { return !stay[taint.MachineID(t)] })
	gates := slices.DeleteFunc(slices.Clone(before.Fields.ReadinessGates), func(gate clusterv1.MachineReadinessGate) bool {
		return !stay[gate.ConditionType]
	})
	return inherit.Content{Annotations: annotations, Taints: taints, Fields: inherit.Fields{ReadinessGates: gates}}
}
