// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Inherits returns the Machine that a Node of the management cluster inherits from, as the Machine will be once it has
// itself inherited, or nil if the Node has none or inherits nothing for now. For a Node of a MachinePool without Machines
// it is one that stands for the pool.
func (c *Chain) Inherits(ctx context.Context, node *corev1.Node, policy inherit.Policy) (*capi.Machine, error) {
	if inherit.Deleting(node) || c.cluster() == (types.NamespacedName{}) {
		return nil, nil
	}
	m, err := c.MachineOf(ctx, node)
	if err != nil {
		return nil, err
	}
	if m == nil {
		pool, err := c.poolOf(ctx, node)
		if err != nil {
			return nil, err
		}
		if pool == nil {
			return c.left(ctx, node, policy)
		}
		return c.inheritsFromPool(ctx, node, pool, policy)
	}
	if m, err = latest(ctx, c, m); err != nil || m == nil {
		return nil, err
	}
	cluster, err := c.Cluster(ctx, m.Namespace, m.Spec.ClusterName)
	if err != nil || policy.NodeLeftAlone(m, cluster) != "" {
		return nil, err
	}
	return policy.AsMatched(node, c.effective(ctx, m, cluster, policy)), nil
}

// left returns what takes from a Node what it got because of a name or an address, where that Machine is another Node or has
// another address now; nil where that is not so. Where the Machine is gone, on its way out or left alone, the Node keeps all.
func (c *Chain) left(ctx context.Context, node *corev1.Node, policy inherit.Policy) (*capi.Machine, error) {
	name := inherit.MatchedBefore(node)
	if name == "" {
		return nil, nil
	}
	m, key := &capi.Machine{}, types.NamespacedName{Namespace: c.cluster().Namespace, Name: name}
	found, err := get(ctx, c.Cache, key, "", m)
	if err != nil || !found || m.DeletionTimestamp != nil || !c.isOwn(m.Namespace, m.Spec.ClusterName) || !inherit.NoLongerMatches(node, m) {
		return nil, err
	}
	cluster, err := c.Cluster(ctx, m.Namespace, m.Spec.ClusterName)
	if err != nil || cluster == nil || cluster.DeletionTimestamp != nil || policy.NodeLeftAlone(m, cluster) != "" {
		return nil, err
	}
	return inherit.Nothing(m), nil
}

// Ignored reports whether a Node inherits nothing because its Machine, its MachinePool or the Cluster of these is opted out.
func (c *Chain) Ignored(ctx context.Context, node *corev1.Node) (bool, error) {
	m, err := c.MachineOf(ctx, node)
	if err != nil {
		return false, err
	}
	var object client.Object = m
	if m == nil {
		pool, err := c.poolOf(ctx, node)
		if err != nil || pool == nil {
			return false, err
		}
		object = pool
	}
	own := c.cluster()
	cluster, err := c.Cluster(ctx, own.Namespace, own.Name)
	return err == nil && inherit.Ignored(object, cluster), err
}

// EffectiveMachines returns the Machines of a Cluster, each as it will be once it has inherited itself, or as it is if it is
// left alone.
func (c *Chain) EffectiveMachines(ctx context.Context, key types.NamespacedName, policy inherit.Policy) ([]*capi.Machine, error) {
	cluster, err := c.Cluster(ctx, key.Namespace, key.Name)
	if err != nil || cluster == nil {
		return nil, err
	}
	list := &capi.MachineList{}
	if _, err := c.Members(ctx, cluster, list); err != nil {
		return nil, err
	}
	var machines []*capi.Machine
	for i := range list.Items {
		m := &list.Items[i]
		if policy.NodeLeftAlone(m, cluster) == "" {
			m = c.effective(ctx, m, cluster, policy)
		}
		machines = append(machines, m)
	}
	return machines, nil
}

// effective returns the Machine as it will be once its chain has inherited. Where an owner cannot be read, or an object is
// left alone, it counts as it is; no API call is made for it.
func (c *Chain) effective(ctx context.Context, m *capi.Machine, cluster *capi.Cluster, policy inherit.Policy) *capi.Machine {
	cached := *c
	cached.Live = nil
	owner, err := cached.MachineOwner(ctx, m)
	if err != nil || policy.LeftAlone(m, cluster) != "" {
		return m
	}
	template := owner.Template
	switch object := owner.Object.(type) {
	case *capi.MachineSet:
		md, err := cached.MachineDeployment(ctx, object)
		if err == nil && md != nil && policy.LeftAlone(object, cluster) == "" {
			template = inherit.TemplateOfMachineSet(policy.EffectiveMachineSet(cached.effectiveMachineDeployment(ctx, md, policy), object))
		}
	case *capi.MachinePool:
		template = inherit.TemplateOfMachinePool(cached.effectiveMachinePool(ctx, object, policy))
	case *unstructured.Unstructured:
		template = cached.effectiveControlPlane(ctx, owner.controlPlane, policy)
	}
	return policy.EffectiveMachine(template, m)
}

func (c *Chain) effectiveMachineDeployment(ctx context.Context, md *capi.MachineDeployment, policy inherit.Policy) *capi.MachineDeployment {
	section, err := section(ctx, c, md, md.Spec.ClusterName, policy, inherit.SectionOfMachineDeployment)
	if err != nil || section == nil {
		return md
	}
	return policy.EffectiveMachineDeployment(*section, md)
}

func (c *Chain) effectiveMachinePool(ctx context.Context, mp *capi.MachinePool, policy inherit.Policy) *capi.MachinePool {
	section, err := section(ctx, c, mp, mp.Spec.ClusterName, policy, inherit.SectionOfMachinePool)
	if err != nil || section == nil {
		return mp
	}
	return policy.EffectiveMachinePool(*section, mp)
}

// effectiveControlPlane returns what the control plane will declare once rule 1 has reached it. The first look at a kind waits
// for its schema, as that of an admission request about one does.
func (c *Chain) effectiveControlPlane(ctx context.Context, cp *capi.ControlPlane, policy inherit.Policy) *inherit.Template {
	section, err := section(ctx, c, cp, clusterLabel(cp), policy, inherit.SectionOfControlPlane)
	if err != nil || section == nil || c.Layout == nil {
		return inherit.TemplateOfControlPlane(cp)
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	layout, err := c.Layout(ctx, cp.GroupVersionKind())
	if err != nil {
		return inherit.TemplateOfControlPlane(cp)
	}
	return policy.EffectiveControlPlane(*section, cp, layout)
}

// MachineOf returns the Machine of the chain's Cluster that a Node is, or nil where there is none.
func (c *Chain) MachineOf(ctx context.Context, node *corev1.Node) (*capi.Machine, error) {
	fields := client.MatchingFields{providerIDField: node.Spec.ProviderID}
	candidates, err := c.machines(ctx, fields, node.Spec.ProviderID != "")
	if err != nil {
		return nil, err
	}
	for _, name := range inherit.NodeNames(node) {
		named, err := c.machines(ctx, client.MatchingFields{nodeNameField: name}, true)
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, named...)
	}
	return inherit.Match(node, c.own(candidates), true), nil
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

// own returns the Machines that belong to the chain's Cluster, each once.
func (c *Chain) own(machines []capi.Machine) []capi.Machine {
	seen := map[types.UID]bool{}
	var own []capi.Machine
	for _, m := range machines {
		if c.isOwn(m.Namespace, m.Spec.ClusterName) && !seen[m.UID] {
			seen[m.UID] = true
			own = append(own, m)
		}
	}
	return own
}

// poolOf returns the MachinePool that a Node is of, where its provider has no Machines, or nil. The pool names its Nodes by
// providerID; where several pools name the same, it is none's.
func (c *Chain) poolOf(ctx context.Context, node *corev1.Node) (*capi.MachinePool, error) {
	if node.Spec.ProviderID == "" {
		return nil, nil
	}
	pools := &capi.MachinePoolList{}
	if err := c.Cache.List(ctx, pools, client.MatchingFields{providerIDField: node.Spec.ProviderID}); err != nil {
		return nil, fmt.Errorf("listing MachinePools by providerID: %w", err)
	}
	own := slices.DeleteFunc(pools.Items, func(mp capi.MachinePool) bool { return !c.isOwn(mp.Namespace, mp.Spec.ClusterName) })
	if len(own) != 1 {
		return nil, nil
	}
	return latest(ctx, c, &own[0])
}

// inheritsFromPool returns a Machine that stands for the MachinePool; nil where the pool is left alone.
func (c *Chain) inheritsFromPool(ctx context.Context, node *corev1.Node, pool *capi.MachinePool, policy inherit.Policy) (*capi.Machine, error) {
	cluster, err := c.Cluster(ctx, pool.Namespace, pool.Spec.ClusterName)
	if err != nil || cluster == nil || policy.LeftAlone(pool, cluster) != "" {
		return nil, err
	}
	m := inherit.MachineOfPool(c.effectiveMachinePool(ctx, pool, policy))
	m.Spec.ProviderID = node.Spec.ProviderID
	return m, nil
}

// isOwn reports whether a Cluster is the one whose Nodes the chain knows.
func (c *Chain) isOwn(namespace, cluster string) bool {
	own := c.cluster()
	return own.Name != "" && own == types.NamespacedName{Namespace: namespace, Name: cluster}
}
