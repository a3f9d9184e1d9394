// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// unreadAnnotation stands in a cache for annotations that are not read. No Node is stored with it: a patch names what differs, and
	// this is on both sides.
	unreadAnnotation = "heirloom.dev/unread"
	// blanks is the longest value that it has. If more is needed, all annotations are kept. A part of a constant takes no memory.
	blanks = blanks1Ki + blanks1Ki + blanks1Ki + blanks1Ki

	blanks64  = "                                                                "
	blanks256 = blanks64 + blanks64 + blanks64 + blanks64
	blanks1Ki = blanks256 + blanks256 + blanks256 + blanks256
)

// LabelsRead returns those labels of a Node that the rules read: what they may bring or have brought. A kubelet and a cloud provider
// write a dozen others. What the rules say of the Node is the same without those.
func (p Policy) LabelsRead(node *corev1.Node) map[string]string {
	return filter(node.Labels, func(key string) bool {
		return key == RecordLabel || key == InitializationLabel || nodeLabel(key) || p.additionalLabel(key) || recordedAs(node, key)
	})
}

// AnnotationsRead returns those annotations of a Node that the rules read. Of the others the rules read only how large they are, so
// one as large as they are together stands for them.
func (p Policy) AnnotationsRead(node *corev1.Node) map[string]string {
	size := 0
	read := filter(node.Annotations, func(key string) bool {
		is := tracks(key) || nodeAnnotation(key) || p.additionalAnnotation(key) || recordedAs(node, key)
		if !is {
			size += len(key) + len(node.Annotations[key])
		}
		return is
	})
	if size == 0 {
		return read
	}
	value := size - len(unreadAnnotation)
	if value < 0 || value > len(blanks) || p.additionalAnnotation(unreadAnnotation) {
		return node.Annotations
	}
	read[unreadAnnotation] = blanks[:value]
	return read
}

// recordedAs reports whether a record of the Node may list a label or an annotation.
func recordedAs(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(TrackingAnnotations(), func(name string) bool { return strings.Contains(node.Annotations[name], key) })
}
