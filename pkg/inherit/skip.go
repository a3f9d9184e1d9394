// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// IgnoreLabel opts an object of Cluster API out of inheritance. On a Machine it includes the Node, on a Cluster all objects of the Cluster.
// On a Node it has no effect.
const IgnoreLabel = "heirloom.dev/ignore"

// IgnoreAndCleanUp is the value of IgnoreLabel with which the loop also removes the entries that Heirloom owns in the object. With any
// other value, the object stays as it is.
const IgnoreAndCleanUp = "cleanup"

// ignoreAndRelease is the deprecated name of IgnoreAndCleanUp.
const ignoreAndRelease = "release"

// Reason says why an object is skipped, as the end of a sentence about it.
type Reason string

// The reasons to skip an object, or to leave it as it is.
const (
	IsDeleted             Reason = "it is being deleted"
	HasIgnoreLabel        Reason = "it carries the label " + IgnoreLabel
	IsCleanedUp           Reason = "it carries the label " + IgnoreLabel + "=" + IgnoreAndCleanUp
	IsPaused              Reason = "it is paused"
	ClusterHasIgnoreLabel Reason = "its Cluster carries the label " + IgnoreLabel
	ClusterIsCleanedUp    Reason = "its Cluster carries the label " + IgnoreLabel + "=" + IgnoreAndCleanUp
	ClusterIsPaused       Reason = "its Cluster is paused"
	ClusterDoesNotExist   Reason = "its Cluster does not exist"
	ClusterIsNotEnrolled  Reason = "neither its Cluster nor the ClusterClass carries the label " + ModeLabel + " (--enrollment=labeled)"
	NothingDeclares       Reason = "no topology declares anything for it"
	OwnerIsNotFound       Reason = "its owner does not exist, or cannot own such an object in Cluster API"
	IsNoMachine           Reason = "no Machine matches it, or several do"
	OnlyCompared          Reason = "Cluster API's topology controller only compares it"
	NotOfMachine          Reason = "it is not the InfraMachine or BootstrapConfig of a Machine"
	// NotOfManagementCluster says that it is not known which Cluster has the Node's API server.
	NotOfManagementCluster Reason = "--management-cluster names no Cluster for it"
)

// NotFiltered is in the reason for an object that a watch filter leaves to another instance.
const NotFiltered = " does not carry the label " + clusterv1.WatchLabel + "="

// ByLabel reports whether the reason is IgnoreLabel, of the object or of its Cluster.
func (r Reason) ByLabel() bool {
	return r == HasIgnoreLabel || r == ClusterHasIgnoreLabel || r.CleansUp()
}

// CleansUp reports whether the loop also removes the entries that Heirloom owns in the object.
func (r Reason) CleansUp() bool { return r == IsCleanedUp || r == ClusterIsCleanedUp }

// Skips reports whether an object of Cluster API inherits nothing for now, and why (docs/design.md §5). cluster is nil if there is none.
func (p Policy) Skips(object metav1.Object, cluster *clusterv1.Cluster) (Reason, bool) {
	switch {
	case p.SkipNothing:
		return "", false
	case p.LeftToAnother(object):
		return Reason("it" + NotFiltered + p.WatchFilter), true
	case object.GetDeletionTimestamp() != nil:
		return IsDeleted, true
	case SkippedByLabel(object), cluster != nil && SkippedByLabel(cluster):
		return labelOf(object, cluster), true
	case has(object.GetAnnotations(), clusterv1.PausedAnnotation):
		return IsPaused, true
	case cluster != nil && Paused(cluster):
		return ClusterIsPaused, true
	}
	return "", false
}

// labelOf says which label makes Heirloom skip an object. A paused object is not cleaned up, because nothing is written to it.
func labelOf(object metav1.Object, cluster *clusterv1.Cluster) Reason {
	paused := has(object.GetAnnotations(), clusterv1.PausedAnnotation) || cluster != nil && Paused(cluster)
	switch {
	case !paused && asksForCleanup(object):
		return IsCleanedUp
	case !paused && cluster != nil && CleansUp(cluster):
		return ClusterIsCleanedUp
	case SkippedByLabel(object):
		return HasIgnoreLabel
	}
	return ClusterHasIgnoreLabel
}

// CleansUp reports whether a Cluster's label cleans up the objects of the Cluster.
func CleansUp(cluster *clusterv1.Cluster) bool {
	return asksForCleanup(cluster) && !Paused(cluster)
}

func asksForCleanup(object metav1.Object) bool {
	value := object.GetLabels()[IgnoreLabel]
	return value == IgnoreAndCleanUp || value == ignoreAndRelease
}

// LeftToAnother reports whether a watch filter leaves the object to another instance.
func (p Policy) LeftToAnother(object metav1.Object) bool {
	return p.WatchFilter != "" && object.GetLabels()[clusterv1.WatchLabel] != p.WatchFilter
}

// Paused reports whether a Cluster is paused, and with it all objects of the Cluster.
func Paused(cluster *clusterv1.Cluster) bool {
	return ptr.Deref(cluster.Spec.Paused, false) || has(cluster.Annotations, clusterv1.PausedAnnotation)
}

// SkipsNode reports whether the Node of this Machine inherits nothing for now, and why. While a Machine is being deleted, its Node
// continues to inherit, as in Cluster API. Without a Cluster, the Node inherits nothing: the right to create a Machine does not include the
// right to create the Cluster that the Machine names.
func (p Policy) SkipsNode(m *clusterv1.Machine, cluster *clusterv1.Cluster) (Reason, bool) {
	declared := m.ObjectMeta
	declared.DeletionTimestamp = nil
	why, skip := p.Skips(&declared, cluster)
	if !skip && cluster == nil {
		return ClusterDoesNotExist, true
	}
	return why, skip
}

// SkipsNodesOf reports whether no Node of the Cluster inherits, and why. enrolled says whether the Cluster, which may be nil, is enrolled.
func (p Policy) SkipsNodesOf(cluster *clusterv1.Cluster, enrolled bool) (Reason, bool) {
	switch {
	case p.SkipNothing:
		return "", false
	case cluster != nil && p.LeftToAnother(cluster):
		return Reason("its Cluster" + NotFiltered + p.WatchFilter), true
	}
	return ClusterIsNotEnrolled, !enrolled
}

// SkippedByLabel reports whether an object carries IgnoreLabel.
func SkippedByLabel(object metav1.Object) bool { return has(object.GetLabels(), IgnoreLabel) }
