// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const (
	// ownerField indexes objects by the UID of their controller.
	ownerField = "ownerUID"
	// clusterField indexes objects by the name of their Cluster.
	clusterField = "clusterName"
	// classField indexes Clusters by the ClusterClass of their topology, as "<namespace>/<name>".
	classField = "clusterClass"
	// providerIDField indexes Machines, MachinePools and Nodes by their providerIDs.
	providerIDField = "providerID"
	// nodeNameField indexes Machines and Nodes by the names and addresses that a Node may have.
	nodeNameField = "nodeName"
)

// Prepare makes the cache hold every kind that a Chain reads, with the indexes that it uses. It is called before the cache starts,
// on every replica: otherwise the first request would start the informer and wait for it.
func Prepare(ctx context.Context, c cache.Cache) error {
	for _, object := range []client.Object{&clusterv1.Cluster{}, &clusterv1.ClusterClass{}} {
		if _, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("preparing the cache of %T: %w", object, err)
		}
	}
	for _, index := range indexes() {
		if err := c.IndexField(ctx, index.object, index.field, index.values); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", index.object, index.field, err)
		}
	}
	return nil
}

// IndexValues returns the values of a field by which the indexes have an object. With it, a reader without indexes can answer a
// Chain's lists.
func IndexValues(object client.Object, field string) []string {
	var values []string
	for _, i := range indexes() {
		if i.field == field {
			values = append(values, i.values(object)...)
		}
	}
	return values
}

type index struct {
	object client.Object
	field  string
	values client.IndexerFunc
}

func indexes() []index {
	all := []index{
		{&clusterv1.Cluster{}, classField, of(func(c *clusterv1.Cluster) []string { return notEmpty(classKey(c)) })},
		{&clusterv1.MachineDeployment{}, clusterField, of(func(md *clusterv1.MachineDeployment) []string { return notEmpty(md.Spec.ClusterName) })},
		{&clusterv1.MachineSet{}, ownerField, ownerUID},
		{&clusterv1.MachineSet{}, clusterField, of(func(ms *clusterv1.MachineSet) []string { return notEmpty(ms.Spec.ClusterName) })},
		{&clusterv1.Machine{}, ownerField, ownerUID},
		{&clusterv1.Machine{}, clusterField, of(func(m *clusterv1.Machine) []string { return notEmpty(m.Spec.ClusterName) })},
		{&clusterv1.Machine{}, providerIDField, of(func(m *clusterv1.Machine) []string { return notEmpty(m.Spec.ProviderID) })},
		{&clusterv1.Machine{}, nodeNameField, of(machineIndexNames)},
		{&clusterv1.MachinePool{}, clusterField, of(func(mp *clusterv1.MachinePool) []string { return notEmpty(mp.Spec.ClusterName) })},
		{&clusterv1.MachinePool{}, providerIDField, of(func(mp *clusterv1.MachinePool) []string { return mp.Spec.ProviderIDList })},
	}
	for field, values := range NodeIndexes() {
		all = append(all, index{&corev1.Node{}, field, values})
	}
	return all
}

// NodeIndexes returns the indexes of Nodes that a cache needs for NodesOf.
func NodeIndexes() map[string]client.IndexerFunc {
	return map[string]client.IndexerFunc{
		providerIDField: of(func(n *corev1.Node) []string { return notEmpty(n.Spec.ProviderID) }),
		nodeNameField:   of(inherit.NodeNames),
	}
}

func of[T client.Object](values func(T) []string) client.IndexerFunc {
	return func(object client.Object) []string {
		if typed, ok := object.(T); ok {
			return values(typed)
		}
		return nil
	}
}

func ownerUID(object client.Object) []string {
	if ref := metav1.GetControllerOfNoCopy(object); ref != nil {
		return []string{string(ref.UID)}
	}
	return nil
}

// machineIndexNames are those of machineNodeNames by which a Node may be the Machine: once that is a Node, its name alone.
func machineIndexNames(m *clusterv1.Machine) []string {
	if m.Status.NodeRef.Name != "" {
		return []string{m.Status.NodeRef.Name}
	}
	return inherit.MachineNames(m)
}

// machineNodeNames are the names and addresses of the Nodes that a Machine may be or have been.
func machineNodeNames(m *clusterv1.Machine) []string {
	return append(inherit.MachineNames(m), notEmpty(m.Status.NodeRef.Name)...)
}

func notEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// machines returns the Machines of a namespace, or of all, with this value. They share their content with the cache and must not be
// changed.
func (c *Chain) machines(ctx context.Context, namespace, field, value string) ([]clusterv1.Machine, error) {
	list := &clusterv1.MachineList{}
	err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{field: value}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing Machines by %s %s: %w", field, value, err)
	}
	return list.Items, nil
}

// pools returns the MachinePools of a namespace, or of all, that name a Node by its providerID. They share their content with the cache
// and must not be changed.
func (c *Chain) pools(ctx context.Context, namespace, providerID string) ([]clusterv1.MachinePool, error) {
	list := &clusterv1.MachinePoolList{}
	err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{providerIDField: providerID}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing MachinePools by providerID: %w", err)
	}
	return list.Items, nil
}
