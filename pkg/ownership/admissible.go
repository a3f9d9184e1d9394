// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"maps"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// admissible leaves out of what is desired what an API server would refuse in the child, once what is stale has gone from it.
func (p *Plan) admissible(current, desired inherit.Object) (inherit.Object, error) {
	var unreadable error
	admitted, leftOut := inherit.Admissible(current, desired, func() inherit.Object {
		if desired.Orphan {
			return current // an orphan gives nothing up
		}
		stays := inherit.Object{Top: p.notOnlyOurs(current.Layout.Top, current.Top, &unreadable)}
		if current.Template != nil {
			template := p.notOnlyOurs(current.Layout.Template, *current.Template, &unreadable)
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
