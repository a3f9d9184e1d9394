// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// EvaluateNode decides what happens to a Node of the chain's Cluster, and what it inherits from.
func (c *Chain) EvaluateNode(ctx context.Context, node *corev1.Node, policy inherit.Policy) (NodeDecision, error) {
	switch {
	case inherit.Deleting(node):
		return skipNode(inherit.IsDeleted), nil
	case c.cluster() == (types.NamespacedName{}):
		return skipNode(inherit.NotOfManagementCluster), nil
	}
	m, err := c.MachineOf(ctx, node)
	if err != nil {
		return NodeDecision{}, err
	}
	if m == nil {
		return c.evaluateNodeOfPool(ctx, node, policy)
	}
	if m, err = latest(ctx, c, m); err != nil || m == nil {
		return noMachine(), err
	}
	cluster, err := c.Cluster(ctx, m.Namespace, m.Spec.ClusterName)
	if err != nil {
		return NodeDecision{}, err
	}
	if why, skipped := policy.SkipsNode(m, cluster); skipped {
		return skipNode(why), nil
	}
	return nodeInherits(policy.SourceFor(node, c.effective(ctx, m, cluster, policy)).AheadOf(m)), nil
}

// evaluateNodeOfPool decides about a Node that belongs to no Machine.
func (c *Chain) evaluateNodeOfPool(ctx context.Context, node *corev1.Node, policy inherit.Policy) (NodeDecision, error) {
	pool, err := c.PoolOf(ctx, node)
	if err != nil {
		return NodeDecision{}, err
	}
	if pool == nil {
		return c.evaluateStranger(ctx, node, policy)
	}
	cluster, err := c.Cluster(ctx, pool.Namespace, pool.Spec.ClusterName)
	if err != nil {
		return NodeDecision{}, err
	}
	if why, skipped := policy.Skips(pool, cluster); skipped {
		return skipNode(why), nil
	}
	if cluster == nil {
		return skipNode(inherit.ClusterDoesNotExist), nil
	}
	return nodeInherits(inherit.SourceOfMachinePool(pool, c.effectiveMachinePool(ctx, pool, cluster, policy))), nil
}

// evaluateStranger takes from a Node what it got because of a name or an address, if that Machine now is another Node or has another
// address. If the Machine is gone, being deleted or skipped, the Node keeps everything.
func (c *Chain) evaluateStranger(ctx context.Context, node *corev1.Node, policy inherit.Policy) (NodeDecision, error) {
	name := inherit.MatchedBefore(node)
	if name == "" {
		return noMachine(), nil
	}
	m, key := &capi.Machine{}, types.NamespacedName{Namespace: c.cluster().Namespace, Name: name}
	found, err := c.find(ctx, "owner", key, "", m)
	if err != nil || !found || m.DeletionTimestamp != nil || !c.isOwn(m.Namespace, m.Spec.ClusterName) || !inherit.NoLongerMatches(node, m) {
		return noMachine(), err
	}
	cluster, err := c.Cluster(ctx, m.Namespace, m.Spec.ClusterName)
	if err != nil {
		return NodeDecision{}, err
	}
	if why, skipped := policy.SkipsNode(m, cluster); skipped {
		return skipNode(why), nil
	}
	if cluster.DeletionTimestamp != nil {
		return noMachine(), nil
	}
	return nodeInherits(inherit.SourceForStranger(m)), nil
}

// EffectiveMachines returns the Machines of a Cluster, each as it is and as it will be once it has inherited itself. A Machine that is
// skipped, or has its Node already, stays as it is. They must not be changed.
func (c *Chain) EffectiveMachines(ctx context.Context, key types.NamespacedName, policy inherit.Policy) ([]inherit.Machine, error) {
	cluster, err := c.Cluster(ctx, key.Namespace, key.Name)
	if err != nil || cluster == nil {
		return nil, err
	}
	list := &capi.MachineList{}
	if err := c.List(ctx, list, append(membersOf(key), client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("listing the Machines of Cluster %s: %w", key, err)
	}
	machines := make([]inherit.Machine, 0, len(list.Items))
	for i := range list.Items {
		m := inherit.Machine{Actual: &list.Items[i], Effective: &list.Items[i]}
		if _, skipped := policy.SkipsNode(m.Actual, cluster); !skipped && m.Actual.Status.NodeRef.Name == "" {
			m.Effective = c.effective(ctx, m.Actual, cluster, policy)
		}
		machines = append(machines, m)
	}
	return machines, nil
}

// effective returns the Machine as it will be once its chain has inherited. If an owner cannot be read, or an object is skipped,
// it counts as it is; no API call is made for it.
func (c *Chain) effective(ctx context.Context, m *capi.Machine, cluster *capi.Cluster, policy inherit.Policy) *capi.Machine {
	c = c.CallingNobody()
	owner, err := c.MachineOwner(ctx, m)
	if _, skipped := policy.Skips(m, cluster); err != nil || skipped {
		return m
	}
	template := owner.Template
	switch object := owner.Object.(type) {
	case *capi.MachineSet:
		template = c.effectiveTemplate(ctx, object, cluster, policy)
	case *capi.MachinePool:
		template = inherit.TemplateOfMachinePool(c.effectiveMachinePool(ctx, object, cluster, policy))
	case *unstructured.Unstructured:
		template = c.effectiveControlPlane(ctx, owner.controlPlane, cluster, policy)
	}
	return policy.EffectiveMachine(template, m)
}

// effectiveTemplate returns what a MachineSet will declare.
func (c *Chain) effectiveTemplate(ctx context.Context, ms *capi.MachineSet, cluster *capi.Cluster, policy inherit.Policy) *inherit.Template {
	md, err := c.MachineDeployment(ctx, ms)
	if _, skipped := policy.Skips(ms, cluster); err != nil || md == nil || skipped {
		return inherit.TemplateOfMachineSet(ms)
	}
	decided, inherits := desired(ctx, c, MachineDeployments(), md, cluster, policy)
	var above []client.Object
	if inherits {
		above = decided.declaredBy
	}
	return c.Remembered.template(setVersionOf(ms, md, above, policy), func() *inherit.Template {
		if inherits {
			md = inherit.EffectiveMachineDeployment(md, decided.Desired)
		}
		return inherit.TemplateOfMachineSet(policy.EffectiveMachineSet(md, ms))
	})
}

func (c *Chain) effectiveMachinePool(ctx context.Context, mp *capi.MachinePool, cluster *capi.Cluster, policy inherit.Policy) *capi.MachinePool {
	if decided, ok := desired(ctx, c, MachinePools(), mp, cluster, policy); ok {
		return inherit.EffectiveMachinePool(mp, decided.Desired)
	}
	return mp
}

// effectiveControlPlane returns what the control plane will declare once rule 1 has reached it. The first look at a kind waits for
// its schema, as does an admission request about one.
func (c *Chain) effectiveControlPlane(ctx context.Context, cp *capi.ControlPlane, cluster *capi.Cluster, policy inherit.Policy) *inherit.Template {
	decided, ok := desired(ctx, c, ControlPlanes(), cp, cluster, policy)
	if !ok || c.Layout == nil {
		return inherit.TemplateOfControlPlane(cp)
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	layout, err := c.Layout(ctx, cp.GroupVersionKind())
	if err != nil {
		return inherit.TemplateOfControlPlane(cp)
	}
	return inherit.EffectiveControlPlane(cp, decided.Desired, layout)
}

// desired returns what an object inherits, and whether it inherits anything now.
func desired[P metav1.Object](ctx context.Context, c *Chain, kind Kind[P], object P, cluster *capi.Cluster, policy inherit.Policy) (Decision, bool) {
	decided, err := kind.decide(ctx, c, object, cluster, policy)
	return decided, err == nil && decided.Outcome == inherit.Inherits
}

// MachineOf returns the Machine of the chain's Cluster that a Node is, or nil where there is none. It must not be changed.
func (c *Chain) MachineOf(ctx context.Context, node *corev1.Node) (*capi.Machine, error) {
	var candidates []capi.Machine
	if node.Spec.ProviderID != "" {
		found, err := c.machines(ctx, providerIDField, node.Spec.ProviderID)
		if err != nil {
			return nil, err
		}
		candidates = found
	}
	for _, name := range inherit.NodeNames(node) {
		named, err := c.machines(ctx, nodeNameField, name)
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, named...)
	}
	return inherit.Match(node, c.own(candidates), true), nil
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

// PoolOf returns the MachinePool of a Node whose provider has no Machines, or nil. The pool names its Nodes by providerID. If several
// pools name the same Node, it belongs to none of them.
func (c *Chain) PoolOf(ctx context.Context, node *corev1.Node) (*capi.MachinePool, error) {
	if node.Spec.ProviderID == "" {
		return nil, nil
	}
	pools, err := c.pools(ctx, node.Spec.ProviderID)
	if err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(pools, func(mp capi.MachinePool) bool { return !c.isOwn(mp.Namespace, mp.Spec.ClusterName) })
	if len(own) != 1 {
		return nil, nil
	}
	return latest(ctx, c, &own[0])
}

// isOwn reports whether a Cluster is the one whose Nodes the chain knows.
func (c *Chain) isOwn(namespace, cluster string) bool {
	own := c.cluster()
	return own.Name != "" && own == types.NamespacedName{Namespace: namespace, Name: cluster}
}

// latest returns a listed object as a Get returns it, which may know more; nil if it is gone.
func latest[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c *Chain, listed P) (P, error) {
	now := P(new(T))
	found, err := c.find(ctx, "owner", client.ObjectKeyFromObject(listed), listed.GetUID(), now)
	if !found || err != nil {
		return nil, err
	}
	return now, nil
}
