// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Unprotected returns the Always taints that are declared for a Node and missing there.
func (s NodeSource) Unprotected(node NodeState) []taint.ID {
	var missing []taint.ID
	at := taint.Positions(node.Taints)
	for _, t := range always(s.taints.all()) {
		if i, ok := at[taint.IDOf(t)]; !ok || node.Taints[i].Value != t.Value {
			missing = append(missing, taint.IDOf(t))
		}
	}
	return missing
}

// Unlabelled reports whether the Node still lacks an inherited label that its kubelet may not set itself.
func (p Policy) Unlabelled(from NodeSource, node NodeState) bool {
	for key, value := range from.Labels {
		now, ok := node.Labels[key]
		if (!ok || now != value) && restricted(key) && (nodeLabel(key) || p.additionalLabel(key)) {
			return true
		}
	}
	return false
}

// Registering reports whether a Node is new, or has not yet received all that Cluster API gives to a new Node.
func Registering(node *corev1.Node, now time.Time) bool {
	return now.Sub(node.CreationTimestamp.Time) < registration ||
		taint.Find(node.Spec.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint)) >= 0
}

// BrokenTracking returns what cannot be read in the annotations that record the taints of a Node, or nil.
func BrokenTracking(node NodeState) error {
	var errs []error
	for _, name := range []string{clusterv1.TaintsFromMachineAnnotation, TaintsFromMachineAnnotation} {
		if _, err := taint.ParseList(node.Annotations[name]); err != nil {
			errs = append(errs, fmt.Errorf("annotation %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
