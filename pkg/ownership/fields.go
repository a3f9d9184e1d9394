// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// fieldPlaces lists the in-place mutable fields.
func fieldPlaces(at capi.Paths, current, desired inherit.Fields) []place {
	whole := func(n int32) any { return int64(n) }
	timeout := whole
	if at.Durations {
		timeout = func(seconds int32) any { return (time.Duration(seconds) * time.Second).String() }
	}
	return []place{
		scalarPlace(at.NodeDrainTimeout, current.NodeDrainTimeout, desired.NodeDrainTimeout, timeout),
		scalarPlace(at.NodeVolumeDetachTimeout, current.NodeVolumeDetachTimeout, desired.NodeVolumeDetachTimeout, timeout),
		scalarPlace(at.NodeDeletionTimeout, current.NodeDeletionTimeout, desired.NodeDeletionTimeout, timeout),
		scalarPlace(at.MinReadySeconds, current.MinReadySeconds, desired.MinReadySeconds, whole),
		gatePlace(at, current.ReadinessGates, desired.ReadinessGates),
	}
}

func scalarPlace(path []string, current, desired *int32, of func(int32) any) place {
	entries := func(n *int32) []entry {
		if n == nil || path == nil {
			return nil
		}
		return []entry{{name: path[len(path)-1], value: of(*n)}}
	}
	return place{form: single{}, path: path, current: entries(current), desired: entries(desired)}
}

func gatePlace(at capi.Paths, current, desired []clusterv1.MachineReadinessGate) place {
	return place{form: elements{"conditionType"}, path: at.ReadinessGates, current: gateEntries(current), desired: gateEntries(desired)}
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
		entries = append(entries, entry{name: gate.ConditionType, value: gate, leaves: leaves})
	}
	return entries
}
