// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// liveTimeout bounds the one GET that an admission request may cost. API servers wait two seconds for us.
const liveTimeout = time.Second

// Chain looks along the owner chain.
type Chain struct {
	// Cache answers from the informers that Prepare set up.
	Cache client.Reader
	// Live answers from the API server. It is nil where an owner that is not cached can wait for its event.
	Live client.Reader
	// ManagementCluster names the Cluster whose Nodes live in the same API server as the Cluster API objects.
	// It is empty where that is not known, or where there is none.
	ManagementCluster types.NamespacedName
}

// MachineDeployment returns the MachineDeployment that controls the MachineSet, or nil where there is none.
func (c *Chain) MachineDeployment(ctx context.Context, ms *capi.MachineSet) (*capi.MachineDeployment, error) {
	md := &capi.MachineDeployment{}
	found, err := c.owner(ctx, ms, "MachineDeployment", md)
	if err != nil || !found || md.Spec.ClusterName != ms.Spec.ClusterName {
		return nil, err
	}
	return md, nil
}

// MachineSet returns the MachineSet that controls the Machine, or nil where there is none.
func (c *Chain) MachineSet(ctx context.Context, m *capi.Machine) (*capi.MachineSet, error) {
	ms := &capi.MachineSet{}
	found, err := c.owner(ctx, m, "MachineSet", ms)
	if err != nil || !found || ms.Spec.ClusterName != m.Spec.ClusterName {
		return nil, err
	}
	return ms, nil
}

// Cluster returns the Cluster of that name from the cache, or nil where it is not there.
func (c *Chain) Cluster(ctx context.Context, namespace, name string) (*capi.Cluster, error) {
	if name == "" {
		return nil, nil
	}
	cluster := &capi.Cluster{}
	err := c.Cache.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, cluster)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting Cluster %s/%s: %w", namespace, name, err)
	}
	return cluster, nil
}

// owner reads the controller of child into owner, if it is of this kind of Cluster API, and reports whether it exists.
// Another object under the owner's name, told by its UID, is not the owner.
func (c *Chain) owner(ctx context.Context, child metav1.Object, kind string, owner client.Object) (bool, error) {
	ref := metav1.GetControllerOfNoCopy(child)
	if ref == nil || ref.Kind != kind || !isClusterAPI(ref.APIVersion) {
		return false, nil
	}
	key := types.NamespacedName{Namespace: child.GetNamespace(), Name: ref.Name}
	found, err := get(ctx, c.Cache, key, ref.UID, owner)
	if found || err != nil || c.Live == nil {
		return found, err
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	return get(ctx, c.Live, key, ref.UID, owner)
}

func get(ctx context.Context, reader client.Reader, key types.NamespacedName, uid types.UID, into client.Object) (bool, error) {
	err := reader.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting owner %s: %w", key, err)
	}
	return into.GetUID() == uid, nil
}

func isClusterAPI(apiVersion string) bool {
	gv, err := schema.ParseGroupVersion(apiVersion)
	return err == nil && gv.Group == clusterv1.GroupVersion.Group
}

// Inherits returns the Machine that a Node of the management cluster inherits from, or nil if it has none or inherits
// nothing for now.
func (c *Chain) Inherits(ctx context.Context, node *corev1.Node, policy inherit.Policy) (*capi.Machine, error) {
	if inherit.OptedOut(node) {
		return nil, nil
	}
	m, err := c.MachineOf(ctx, node)
	if err != nil || m == nil {
		return nil, err
	}
	cluster, err := c.Cluster(ctx, m.Namespace, m.Spec.ClusterName)
	if err != nil || policy.NodeLeftAlone(m, cluster) != "" {
		return nil, err
	}
	return m, nil
}

// MachineOf returns the Machine that a Node of the management cluster is, or nil where there is none.
func (c *Chain) MachineOf(ctx context.Context, node *corev1.Node) (*capi.Machine, error) {
	fields := client.MatchingFields{providerIDField: node.Spec.ProviderID}
	candidates, err := c.machines(ctx, fields, node.Spec.ProviderID != "")
	if err != nil {
		return nil, err
	}
	if c.ManagementCluster.Name == "" {
		return inherit.Match(node, candidates, false), nil
	}
	for _, name := range inherit.NodeNames(node) {
		named, err := c.machines(ctx, client.MatchingFields{nodeNameField: name}, true)
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, named...)
	}
	return inherit.Match(node, c.ofManagementCluster(candidates), true), nil
}

func (c *Chain) machines(ctx context.Context, fields client.MatchingFields, wanted bool) ([]capi.Machine, error) {
	if !wanted {
		return nil, nil
	}
	list := &capi.MachineList{}
	if err := c.Cache.List(ctx, list, fields); err != nil {
		return nil, fmt.Errorf("listing Machines by %v: %w", fields, err)
	}
	return list.Items, nil
}

// ofManagementCluster returns the Machines that belong to the management cluster, each once.
func (c *Chain) ofManagementCluster(machines []capi.Machine) []capi.Machine {
	seen := map[types.UID]bool{}
	var own []capi.Machine
	for _, m := range machines {
		if m.Namespace == c.ManagementCluster.Namespace && m.Spec.ClusterName == c.ManagementCluster.Name && !seen[m.UID] {
			seen[m.UID] = true
			own = append(own, m)
		}
	}
	return own
}
