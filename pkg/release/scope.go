// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// scope says which objects belong to this Heirloom, if others share the management cluster.
type scope struct {
	watchFilter string
	// cluster is the only Cluster whose objects are released, or empty.
	cluster string
	// owners are the objects seen so far that are ours: a provider need not copy the label of a watch filter.
	owners sets.Set[types.UID]
	// someNodes says that only these Nodes of the management cluster are ours.
	someNodes              bool
	providerIDs, nodeNames sets.Set[string]
}

// scope finds out which Nodes of the management cluster are ours, if they are not all.
func (s *session) scope(ctx context.Context) (*scope, error) {
	all := &scope{
		watchFilter: s.WatchFilter, owners: sets.New[types.UID](), someNodes: s.WatchFilter != "" || s.Namespace != "",
		providerIDs: sets.New[string](), nodeNames: sets.New[string](),
	}
	if s.Only != nil {
		all.cluster, all.someNodes = s.Only.Name, true
	}
	if !all.someNodes {
		return all, nil
	}
	for _, kind := range []string{"Machine", "MachinePool"} {
		err := s.eachServed(ctx, kind, func(owner *unstructured.Unstructured) {
			if all.labelled(owner) {
				all.addNodes(owner, s.ManagementCluster)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// addNodes notes the Nodes of a Machine or a MachinePool.
func (s *scope) addNodes(owner *unstructured.Unstructured, managementCluster types.NamespacedName) {
	if id, _, _ := unstructured.NestedString(owner.Object, "spec", "providerID"); id != "" {
		s.providerIDs.Insert(id)
	}
	ids, _, _ := unstructured.NestedStringSlice(owner.Object, "spec", "providerIDList")
	s.providerIDs.Insert(ids...)
	// Names repeat between clusters, so they count for one only.
	cluster, _, _ := unstructured.NestedString(owner.Object, "spec", "clusterName")
	if managementCluster != (types.NamespacedName{Namespace: owner.GetNamespace(), Name: cluster}) {
		return
	}
	if name, _, _ := unstructured.NestedString(owner.Object, "status", "nodeRef", "name"); name != "" {
		s.nodeNames.Insert(name)
	}
}

// hasNode reports whether a Node of the management cluster is ours.
func (s *scope) hasNode(node *corev1.Node) bool {
	return !s.someNodes || s.nodeNames.Has(node.Name) || node.Spec.ProviderID != "" && s.providerIDs.Has(node.Spec.ProviderID)
}

// hasObject reports whether an object of Cluster API is ours, and remembers it as an owner.
func (s *scope) hasObject(object metav1.Object) bool {
	if !s.labelled(object) {
		return false
	}
	s.owners.Insert(object.GetUID())
	return true
}

// hasExternal reports whether an InfraMachine or BootstrapConfig is ours: it is if its owner is.
func (s *scope) hasExternal(object metav1.Object) bool {
	if s.watchFilter == "" && s.ofCluster(object) {
		return true
	}
	owners := object.GetOwnerReferences()
	if len(owners) == 0 {
		return s.labelled(object)
	}
	return slices.ContainsFunc(owners, func(ref metav1.OwnerReference) bool { return s.owners.Has(ref.UID) })
}

func (s *scope) labelled(object metav1.Object) bool {
	return (s.watchFilter == "" || object.GetLabels()[clusterv1.WatchLabel] == s.watchFilter) && s.ofCluster(object)
}

// ofCluster reports whether an object is of the only Cluster that is released. Cluster API labels all objects of a Cluster.
func (s *scope) ofCluster(object metav1.Object) bool {
	return s.cluster == "" || object.GetLabels()[clusterv1.ClusterNameLabel] == s.cluster
}
