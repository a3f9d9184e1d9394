// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// fieldPlaces lists the in-place mutable fields.
func fieldPlaces(at inherit.Paths, current, desired inherit.Fields) []place {
	var all []place
	for f := range current.Seconds {
		all = append(all, scalarPlace(at, inherit.Field(f), current.Seconds[f], desired.Seconds[f]))
	}
	return append(all, gatePlace(at, current.ReadinessGates, desired.ReadinessGates))
}

func scalarPlace(at inherit.Paths, f inherit.Field, current, desired *int32) place {
	path := at.Fields[f]
	entries := func(seconds *int32) []entry {
		if seconds == nil || path == nil {
			return nil
		}
		return []entry{{name: path[len(path)-1], value: at.Value(f, *seconds)}}
	}
	return place{form: single{}, path: path, current: entries(current), desired: entries(desired)}
}

func gatePlace(at inherit.Paths, current, desired []clusterv1.MachineReadinessGate) place {
	return place{form: elements{"conditionType"}, path: at.Fields[inherit.ReadinessGates], current: gateEntries(current), desired: gateEntries(desired)}
}

func gateEntries(gates []clusterv1.MachineReadinessGate) []entry {
	seen := sets.New[string]()
	entries := make([]entry, 0, len(gates))
	for _, gate := range gates {
		if seen.Has(gate.ConditionType) {
			continue
		}
		seen.Insert(gate.ConditionType)
		leaves := map[string]string{"conditionType": gate.ConditionType}
		if gate.Polarity != "" {
			leaves["polarity"] = string(gate.Polarity)
		}
		entries = append(entries, entry{name: gate.ConditionType, value: gate, leaves: leaves})
	}
	return entries
}
