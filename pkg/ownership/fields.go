// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// paths says where an object has its in-place mutable fields. A path that is nil stands for a field that it lacks.
type paths struct {
	drain, detach, deletion []string
	minReady, gates         []string
	// seconds renders a timeout: v1beta2 has seconds, v1beta1 a duration.
	seconds func(int32) any
}

// fieldPaths returns the paths below a Machine's spec. around is the spec of the object around a template, where v1beta1
// has minReadySeconds; a Machine of v1beta1 has none.
func fieldPaths(old bool, spec, around []string) paths {
	below := func(names ...string) []string { return slices.Concat(spec, names) }
	if !old {
		return paths{
			drain:    below("deletion", "nodeDrainTimeoutSeconds"),
			detach:   below("deletion", "nodeVolumeDetachTimeoutSeconds"),
			deletion: below("deletion", "nodeDeletionTimeoutSeconds"),
			minReady: below("minReadySeconds"),
			gates:    below("readinessGates"),
			seconds:  func(seconds int32) any { return int64(seconds) },
		}
	}
	p := paths{
		drain:    below("nodeDrainTimeout"),
		detach:   below("nodeVolumeDetachTimeout"),
		deletion: below("nodeDeletionTimeout"),
		gates:    below("readinessGates"),
		seconds:  func(seconds int32) any { return (time.Duration(seconds) * time.Second).String() },
	}
	if around != nil {
		p.minReady = append(slices.Clone(around), "minReadySeconds")
	}
	return p
}

func (p paths) places(current, desired inherit.Fields) []place {
	plain := func(n int32) any { return int64(n) }
	all := []place{
		scalarPlace(p.drain, current.NodeDrainTimeout, desired.NodeDrainTimeout, p.seconds),
		scalarPlace(p.detach, current.NodeVolumeDetachTimeout, desired.NodeVolumeDetachTimeout, p.seconds),
		scalarPlace(p.deletion, current.NodeDeletionTimeout, desired.NodeDeletionTimeout, p.seconds),
		gatePlace(p.gates, current.ReadinessGates, desired.ReadinessGates),
	}
	if p.minReady != nil {
		all = append(all, scalarPlace(p.minReady, current.MinReadySeconds, desired.MinReadySeconds, plain))
	}
	return all
}

func scalarPlace(path []string, current, desired *int32, of func(int32) any) place {
	entries := func(n *int32) []entry {
		if n == nil {
			return nil
		}
		return []entry{{name: path[len(path)-1], value: of(*n)}}
	}
	return place{
		path: path, scalar: true, versioned: true, current: entries(current), desired: entries(desired),
		render: func(e []entry) any { return e[0].value },
	}
}

// gatePlace is a list map: Cluster API's CRDs declare conditionType as its key.
func gatePlace(path []string, current, desired []clusterv1.MachineReadinessGate) place {
	return place{path: path, current: gateEntries(current), desired: gateEntries(desired), render: renderList}
}

func gateEntries(gates []clusterv1.MachineReadinessGate) []entry {
	seen := sets.New[string]()
	entries := make([]entry, 0, len(gates))
	for _, gate := range gates {
		if seen.Has(gate.ConditionType) {
			continue
		}
		seen.Insert(gate.ConditionType)
		leaves := map[string]any{"conditionType": gate.ConditionType}
		if gate.Polarity != "" {
			leaves["polarity"] = string(gate.Polarity)
		}
		entries = append(entries, entry{
			name:    gate.ConditionType,
			element: fieldpath.PathElement{Key: &value.FieldList{{Name: "conditionType", Value: value.NewValueInterface(gate.ConditionType)}}},
			value:   gate,
			leaves:  leaves,
		})
	}
	return entries
}
