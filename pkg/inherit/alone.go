// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// IgnoreLabel opts an object out of inheritance; on a Cluster, everything that belongs to the Cluster.
const IgnoreLabel = "heirloom.dev/ignore"

// LeftAlone says why an object of Cluster API inherits nothing for now, or "" if it does (DESIGN.md §5): objects that
// are being deleted, paused or opted out are not touched, so that clusterctl move, backup and restore work; neither are
// those that a watch filter leaves to another instance.
// The cluster may be nil, where there is none.
func (p Policy) LeftAlone(object metav1.Object, cluster *capi.Cluster) string {
	switch {
	case p.notOurs(object):
		return "it does not carry the label " + clusterv1.WatchLabel + "=" + p.WatchFilter
	case object.GetDeletionTimestamp() != nil:
		return "it is being deleted"
	case has(object.GetLabels(), IgnoreLabel):
		return "it carries the label " + IgnoreLabel
	case has(object.GetAnnotations(), clusterv1.PausedAnnotation):
		return "it is paused"
	case cluster == nil:
		return ""
	case Paused(cluster):
		return "its Cluster is paused"
	case has(cluster.Labels, IgnoreLabel):
		return "its Cluster carries the label " + IgnoreLabel
	}
	return ""
}

// notOurs reports whether a watch filter leaves the object to another instance.
func (p Policy) notOurs(object metav1.Object) bool {
	return p.WatchFilter != "" && object.GetLabels()[clusterv1.WatchLabel] != p.WatchFilter
}

// Paused reports whether a Cluster is paused, and everything that belongs to it with that.
func Paused(cluster *capi.Cluster) bool {
	return cluster.Spec.Paused || has(cluster.Annotations, clusterv1.PausedAnnotation)
}

func has(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

// NodeLeftAlone says why the Node of this Machine inherits nothing for now, or "" if it does. A Machine that is being
// deleted keeps its Node as it is declared until the Node is gone, as Cluster API does.
func (p Policy) NodeLeftAlone(m *capi.Machine, cluster *capi.Cluster) string {
	declared := m.ObjectMeta
	declared.DeletionTimestamp = nil
	return p.LeftAlone(&declared, cluster)
}

// OptedOut reports whether a Node itself is not to be touched, whatever its Machine says.
func OptedOut(node metav1.Object) bool {
	return node.GetDeletionTimestamp() != nil || has(node.GetLabels(), IgnoreLabel)
}
