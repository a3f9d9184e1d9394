// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Kept names what an update of a Node tried to take away or to change and inheritance put back, such as `label "a/b"`:
// what the old object and the result have and the requested object has not.
func Kept(old, requested, result NodeState) []string {
	var kept []string
	for _, key := range restored(old.Labels, requested.Labels, result.Labels) {
		kept = append(kept, fmt.Sprintf("label %q", key))
	}
	for _, key := range restored(old.Annotations, requested.Annotations, result.Annotations) {
		kept = append(kept, fmt.Sprintf("annotation %q", key))
	}
	for _, t := range result.Taints {
		if hasTaint(old.Taints, t) && !hasTaint(requested.Taints, t) {
			kept = append(kept, fmt.Sprintf("taint %q", taint.Format(t)))
		}
	}
	return kept
}

func restored(old, requested, result map[string]string) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(result)) {
		value := result[key]
		if before, had := old[key]; !had || before != value {
			continue
		}
		if now, still := requested[key]; !still || now != value {
			keys = append(keys, key)
		}
	}
	return keys
}

func hasTaint(taints []corev1.Taint, t corev1.Taint) bool {
	i := taint.Find(taints, taint.IDOf(t))
	return i >= 0 && taints[i].Value == t.Value
}
