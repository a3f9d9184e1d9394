// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const (
	// ownerField indexes objects by the UID of their controller.
	ownerField = "ownerUID"
	// clusterField indexes objects by the name of their Cluster.
	clusterField = "clusterName"
	// classField indexes Clusters by the ClusterClass of their topology, as "<namespace>/<name>".
	classField = "clusterClass"
	// providerIDField indexes Machines, MachinePools and Nodes by the buckets of their providerIDs.
	providerIDField = "providerID"
	// nodeNameField indexes Machines and Nodes by the buckets of the names and addresses that a Node may have.
	nodeNameField = "nodeName"
)

// Prepare makes the cache hold every kind that a Chain reads, with the indexes that it uses. It is called before the cache starts,
// on every replica: otherwise the first request would start the informer and wait for it. It holds Nodes if that is said.
func Prepare(ctx context.Context, c cache.Cache, nodes bool) error {
	for _, object := range []client.Object{&capi.Cluster{}, &capi.ClusterClass{}} {
		if _, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("preparing the cache of %T: %w", object, err)
		}
	}
	for _, index := range indexes() {
		if _, is := index.object.(*corev1.Node); is && !nodes {
			continue
		}
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
		{&capi.Cluster{}, classField, of(func(c *capi.Cluster) []string { return notEmpty(classKey(c)) })},
		{&capi.MachineDeployment{}, clusterField, of(func(md *capi.MachineDeployment) []string { return notEmpty(md.Spec.ClusterName) })},
		{&capi.MachineSet{}, ownerField, ownerUID},
		{&capi.MachineSet{}, clusterField, of(func(ms *capi.MachineSet) []string { return notEmpty(ms.Spec.ClusterName) })},
		{&capi.Machine{}, ownerField, ownerUID},
		{&capi.Machine{}, clusterField, of(func(m *capi.Machine) []string { return notEmpty(m.Spec.ClusterName) })},
		{&capi.Machine{}, providerIDField, bucketsOf(of(func(m *capi.Machine) []string { return notEmpty(m.Spec.ProviderID) }))},
		{&capi.Machine{}, nodeNameField, bucketsOf(of(machineNodeNames))},
		{&capi.MachinePool{}, clusterField, of(func(mp *capi.MachinePool) []string { return notEmpty(mp.Spec.ClusterName) })},
		{&capi.MachinePool{}, providerIDField, bucketsOf(of(func(mp *capi.MachinePool) []string { return mp.Spec.ProviderIDList }))},
	}
	for field, values := range NodeIndexes() {
		all = append(all, index{&corev1.Node{}, field, values})
	}
	return all
}

// NodeIndexes returns the indexes of Nodes that a cache needs for NodesOf.
func NodeIndexes() map[string]client.IndexerFunc {
	return map[string]client.IndexerFunc{
		providerIDField: bucketsOf(of(func(n *corev1.Node) []string { return notEmpty(n.Spec.ProviderID) })),
		nodeNameField:   bucketsOf(of(inherit.NodeNames)),
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

func machineNodeNames(m *capi.Machine) []string {
	return append(inherit.MachineNames(m), notEmpty(m.Status.NodeRef.Name)...)
}

func notEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}
