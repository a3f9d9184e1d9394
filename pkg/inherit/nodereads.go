// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// LabelsRead returns those labels of a Node that the rules read: what they may bring or have brought. A kubelet and a cloud provider
// write a dozen others. What the rules say of the Node is the same without those.
func (p Policy) LabelsRead(node *corev1.Node) map[string]string {
	return filter(node.Labels, func(key string) bool {
		return key == RecordLabel || key == InitializationLabel || nodeLabel(key) || p.additionalLabel(key) ||
			slices.ContainsFunc(TrackingAnnotations(), func(name string) bool { return strings.Contains(node.Annotations[name], key) })
	})
}
