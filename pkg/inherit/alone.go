// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// IgnoreLabel opts an object of Cluster API out of inheritance; on a Machine also its Node, on a Cluster everything that
// belongs to the Cluster. On a Node it means nothing.
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
//
// Where there is no Cluster, it inherits nothing: nobody has to be allowed to create one to create a Machine that names it.
func (p Policy) NodeLeftAlone(m *capi.Machine, cluster *capi.Cluster) string {
	declared := m.ObjectMeta
	declared.DeletionTimestamp = nil
	why := p.LeftAlone(&declared, cluster)
	if why == "" && cluster == nil {
		return "its Cluster does not exist"
	}
	return why
}

// Deleting reports whether a Node is being deleted, so that it is not touched, whatever its Machine says. The opt-out label
// means nothing on a Node: a kubelet may write it there, and must not shed its taints with it.
func Deleting(node metav1.Object) bool {
	return node.GetDeletionTimestamp() != nil
}

// Ignored reports whether an object is opted out by the label, itself or through its Cluster, which may be nil.
func Ignored(object metav1.Object, cluster *capi.Cluster) bool {
	return has(object.GetLabels(), IgnoreLabel) || cluster != nil && has(cluster.Labels, IgnoreLabel)
}
