// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clustersOf returns the Clusters that an object is about: those of a ClusterClass, or its own.
func (e *evaluation) clustersOf(ctx context.Context, object *unstructured.Unstructured) ([]types.NamespacedName, error) {
	key := types.NamespacedName{Namespace: object.GetNamespace()}
	switch {
	case object.GroupVersionKind().Group == clusterv1.GroupVersion.Group && object.GetKind() == "ClusterClass":
		return e.from.Chain().ClustersOf(ctx, object)
	case object.GroupVersionKind().Group == clusterv1.GroupVersion.Group && object.GetKind() == "Cluster":
		key.Name = object.GetName()
	default:
		name, _, _ := unstructured.NestedString(object.Object, "spec", "clusterName")
		key.Name = cmp.Or(name, object.GetLabels()[clusterv1.ClusterNameLabel])
	}
	if key.Name == "" {
		return nil, nil
	}
	return []types.NamespacedName{key}, nil
}

// Clusters returns the Clusters of a namespace; of all, if it is empty.
func Clusters(ctx context.Context, from client.Reader, namespace string) ([]types.NamespacedName, error) {
	list := &clusterv1.ClusterList{}
	if err := from.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing Clusters: %w", err)
	}
	var all []types.NamespacedName
	for i := range list.Items {
		all = append(all, client.ObjectKeyFromObject(&list.Items[i]))
	}
	return sorted(all), nil
}

// sorted returns the names in their order, each once.
func sorted(names []types.NamespacedName) []types.NamespacedName {
	slices.SortFunc(names, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Compact(names)
}
