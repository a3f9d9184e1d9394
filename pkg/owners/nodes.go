// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// NodeDecision says what happens to a Node: it is skipped, it has no Machine or MachinePool (NoOwner), or it inherits.
type NodeDecision struct {
	Outcome inherit.Outcome
	// Reason says why a Node stays as it is.
	Reason inherit.Reason
	// Observed says that the decision is only reported.
	Observed bool
	// Source is the object from which a Node inherits.
	Source inherit.NodeSource
}

// Inherits reports whether the Node inherits from a Machine or a MachinePool.
func (d NodeDecision) Inherits() bool {
	return d.Outcome == inherit.Inherits
}

func skipNode(why inherit.Reason) NodeDecision {
	return NodeDecision{Outcome: inherit.Skipped, Reason: why}
}

func nodeInherits(from inherit.NodeSource) NodeDecision {
	return NodeDecision{Outcome: inherit.Inherits, Source: from}
}

var errNotThere = errors.New("the object does not exist, or its kind is not served")

// noMachine is the decision about a Node without a Machine and without a MachinePool.
var noMachine = NodeDecision{Outcome: inherit.NoOwner, Reason: inherit.IsNoMachine}

// NodePlan is the decision about a Node, and the plan that carries it out. The plan of a Node that inherits nothing is empty.
type NodePlan struct {
	NodeDecision
	inherit.NodePlan
}

// Changes reports whether the plan changes the Node.
func (p NodePlan) Changes() bool { return p.Inherits() && p.NodePlan.Changes() }

// PlanNode plans for a Node of the chain's Cluster. Webhook, loop and plugin call it.
func (c *Chain) PlanNode(ctx context.Context, node inherit.Node, policy inherit.Policy, turn inherit.Turn) (p NodePlan, err error) {
	if p.NodeDecision, err = c.SourceOf(ctx, node, policy); err == nil && p.Inherits() {
		p.NodePlan = policy.PlanNode(node, p.Source, turn)
	}
	return p, err
}

// SourceOf decides what happens to a Node of the chain's Cluster (see Within), and from which object it inherits. A Node that is being
// deleted inherits until it is gone.
func (c *Chain) SourceOf(ctx context.Context, read inherit.Node, policy inherit.Policy) (NodeDecision, error) {
	if c.within == (types.NamespacedName{}) {
		return skipNode(inherit.NotOfManagementCluster), nil
	}
	node := read.Object
	m, err := c.MachineOf(ctx, node)
	if err != nil {
		return NodeDecision{}, err
	}
	if m == nil {
		return c.evaluateNodeOfPool(ctx, read, policy)
	}
	if !inherit.Proven(node, m) && inherit.MatchedBefore(node) != m.Name { // a kubelet cannot leave a Machine with another address
		before, err := c.matchedBefore(ctx, node)
		if err != nil {
			return NodeDecision{}, err
		}
		if before != nil && !inherit.NoLongerMatches(node, before) {
			m = before
		}
	}
	return c.evaluateNodeOfMachine(ctx, read, m, policy)
}

// evaluateNodeOfMachine decides about a Node that belongs to a Machine. If the nodeRef of the Machine turns out to name another Node,
// this Node loses the entries that it got because of a name or an address, but not while the Machine or its Cluster is being deleted.
func (c *Chain) evaluateNodeOfMachine(ctx context.Context, read inherit.Node, m *clusterv1.Machine, policy inherit.Policy) (decided NodeDecision, err error) {
	node := read.Object
	cluster, err := c.Cluster(ctx, m.Namespace, m.Spec.ClusterName)
	if err != nil {
		return NodeDecision{}, err
	}
	policy, observed, enrolled, _ := c.Observes(ctx, cluster, policy)
	if why, skipped := policy.SkipsNodesOf(cluster, enrolled); skipped {
		return skipNode(why), nil
	}
	defer func() { decided.Observed = observed }()
	why, skipped := policy.SkipsNode(m, cluster)
	switch {
	case skipped:
		return skipNode(why), nil
	case !inherit.NoLongerMatches(node, m):
		source := policy.SourceFor(node, c.effective(ctx, m, cluster, policy)).AheadOf(m)
		if len(policy.Facts) > 0 {
			source = source.WithFacts(c.facts(ctx, m, policy), read)
		}
		return nodeInherits(source), nil
	case m.DeletionTimestamp != nil || cluster.DeletionTimestamp != nil:
		return noMachine, nil
	}
	return nodeInherits(inherit.SourceForStranger(m)), nil
}

// facts reads the facts in a Machine, its InfraMachine and its BootstrapConfig. Facts of an object that cannot be read now are unknown.
func (c *Chain) facts(ctx context.Context, m *clusterv1.Machine, policy inherit.Policy) (values []inherit.FactValue) {
	c = c.cachedOnly()
	for _, f := range policy.Facts {
		if f.OfMachines() {
			values = append(values, f.InMachine(m))
		}
	}
	for _, ref := range ExternalRefs(m) {
		said := policy.FactsOf(ref.GroupKind())
		if len(said) == 0 {
			continue
		}
		object, err := c.provided(ctx, types.NamespacedName{Namespace: m.Namespace, Name: ref.Name}, ref.GroupKind())
		for _, f := range said {
			value := f.In(object)
			value.Unknown = err != nil
			values = append(values, value)
		}
	}
	return values
}

// provided reads an object of a provider's kind. It returns an error for an object that does not exist: as with a missing owner, the Node
// keeps the facts.
func (c *Chain) provided(ctx context.Context, key types.NamespacedName, kind schema.GroupKind) (map[string]any, error) {
	gvk, served, err := c.Served(kind.WithVersion(""))
	if err != nil || !served {
		return nil, errors.Join(err, errNotThere)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	if found, err := c.get(ctx, key, "", object); err != nil || !found {
		return nil, errors.Join(err, errNotThere)
	}
	return object.Object, nil
}

// evaluateNodeOfPool decides about a Node that no Machine matches now.
func (c *Chain) evaluateNodeOfPool(ctx context.Context, read inherit.Node, policy inherit.Policy) (decided NodeDecision, err error) {
	pool, err := c.PoolOf(ctx, read.Object)
	if err != nil {
		return NodeDecision{}, err
	}
	if pool == nil {
		m, err := c.matchedBefore(ctx, read.Object)
		if err != nil || m == nil {
			return noMachine, err
		}
		return c.evaluateNodeOfMachine(ctx, read, m, policy)
	}
	cluster, err := c.Cluster(ctx, pool.Namespace, pool.Spec.ClusterName)
	if err != nil {
		return NodeDecision{}, err
	}
	policy, observed, enrolled, _ := c.Observes(ctx, cluster, policy)
	if why, skipped := policy.SkipsNodesOf(cluster, enrolled); skipped {
		return skipNode(why), nil
	}
	defer func() { decided.Observed = observed }()
	if why, skipped := policy.Skips(pool, cluster); skipped {
		return skipNode(why), nil
	}
	if cluster == nil {
		return skipNode(inherit.ClusterDoesNotExist), nil
	}
	return nodeInherits(policy.SourceForPool(pool, c.effectiveMachinePool(ctx, pool, cluster, policy))), nil
}

// matchedBefore returns the Machine that the Node matched earlier by a name or an address, or nil if there is none any more.
func (c *Chain) matchedBefore(ctx context.Context, node *corev1.Node) (*clusterv1.Machine, error) {
	name := inherit.MatchedBefore(node)
	if name == "" {
		return nil, nil
	}
	m, err := read[clusterv1.Machine](ctx, c, "Machine", types.NamespacedName{Namespace: c.within.Namespace, Name: name}, "")
	if m == nil || !c.isOwn(m) || !inherit.WasMatched(node, m) {
		return nil, err
	}
	return m, nil
}

// EffectiveMachines returns the Machines of a Cluster, each as it is and as it will be after it has inherited. A Machine that is skipped,
// or has its Node already, stays as it is. The Machines must not be changed. The second result is the policy for their Nodes.
func (c *Chain) EffectiveMachines(ctx context.Context, key types.NamespacedName, policy inherit.Policy) ([]inherit.Machine, inherit.Policy, error) {
	cluster, err := c.Cluster(ctx, key.Namespace, key.Name)
	if err != nil || cluster == nil {
		return nil, policy, err
	}
	list := &clusterv1.MachineList{}
	if err := c.list(ctx, list, membersOf(key)...); err != nil {
		return nil, policy, fmt.Errorf("listing the Machines of Cluster %s: %w", key, err)
	}
	machines := make([]inherit.Machine, 0, len(list.Items))
	for i := range list.Items {
		if ctx.Err() != nil {
			return nil, policy, fmt.Errorf("reading the Machines of Cluster %s: %w", key, ctx.Err())
		}
		m := inherit.Machine{Actual: &list.Items[i], Effective: &list.Items[i]}
		if _, skipped := policy.SkipsNode(m.Actual, cluster); !skipped && m.Actual.Status.NodeRef.Name == "" {
			m.Effective = c.effective(ctx, m.Actual, cluster, policy)
		}
		machines = append(machines, m)
	}
	policy, _, _, _ = c.Observes(ctx, cluster, policy)
	return machines, policy, nil
}

// effective returns the Machine as it will be after all objects of its owner chain have inherited. An object that is skipped, or whose
// owner cannot be read, counts as it is. The API server is not asked for owners that are not cached.
func (c *Chain) effective(ctx context.Context, m *clusterv1.Machine, cluster *clusterv1.Cluster, policy inherit.Policy) *clusterv1.Machine {
	c = c.cachedOnly()
	owner, err := c.MachineOwner(ctx, m)
	if _, skipped := policy.Skips(m, cluster); err != nil || skipped {
		return m
	}
	template := owner.Template
	switch object := owner.Object.(type) {
	case *clusterv1.MachineSet:
		template = c.effectiveTemplate(ctx, object, cluster, policy)
	case *clusterv1.MachinePool:
		template = c.effectiveMachinePool(ctx, object, cluster, policy)
	case *unstructured.Unstructured:
		template = c.effectiveControlPlane(ctx, owner.controlPlane, cluster, policy)
	}
	return policy.EffectiveMachine(template, m)
}

// effectiveTemplate returns the Machine template of a MachineSet as it will be after inheritance.
func (c *Chain) effectiveTemplate(ctx context.Context, ms *clusterv1.MachineSet, cluster *clusterv1.Cluster, policy inherit.Policy) *inherit.Template {
	md, err := c.MachineDeployment(ctx, ms)
	if _, skipped := policy.Skips(ms, cluster); err != nil || md == nil || skipped {
		return inherit.TemplateOfMachineSet(ms)
	}
	if decided, inherits := c.desired(ctx, MachineDeployments, md, cluster, policy); inherits {
		md = inherit.EffectiveMachineDeployment(md, decided.Desired)
	}
	return policy.EffectiveMachineSet(md, ms)
}

func (c *Chain) effectiveMachinePool(ctx context.Context, mp *clusterv1.MachinePool, cluster *clusterv1.Cluster, policy inherit.Policy) *inherit.Template {
	template := inherit.TemplateOfMachinePool(mp)
	if decided, inherits := c.desired(ctx, MachinePools, mp, cluster, policy); inherits {
		template.Content = inherit.OfMachinePool(mp).Effective(decided.Desired)
	}
	return template
}

// effectiveControlPlane returns the Machine template of a control plane as it will be after rule 1. The first call for a kind waits for
// the schema of the kind, as an admission request does.
func (c *Chain) effectiveControlPlane(ctx context.Context, cp *inherit.ControlPlane, cluster *clusterv1.Cluster, policy inherit.Policy) *inherit.Template {
	template := inherit.TemplateOfControlPlane(cp)
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	if decided, inherits := c.desired(ctx, ControlPlanes, cp, cluster, policy); inherits {
		if current, err := contentOfControlPlane(ctx, c, cp); err == nil {
			template.Content = current.Effective(decided.Desired)
		}
	}
	return template
}

// desired returns the decision about an object, and whether the object inherits now.
func (c *Chain) desired(ctx context.Context, kind Kind, object metav1.Object, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, bool) {
	decided, err := kind.decide(ctx, c, object, cluster, policy)
	return decided, err == nil && decided.Outcome == inherit.Inherits
}

// MachineOf returns the Machine of a Node of the chain's Cluster, or nil if there is none. It must not be changed. A chain that reads
// live finds the Machine in the cache, and then reads it again from the API server.
func (c *Chain) MachineOf(ctx context.Context, node *corev1.Node) (*clusterv1.Machine, error) {
	const tooMany = 200 // Machines of a Cluster with the same value: fewer honest Machines share a name before they have Nodes
	candidates, known, m := map[types.UID]*clusterv1.Machine{}, indexed(node), (*clusterv1.Machine)(nil)
	known[nodeRefField] = one(node.Name)
	for _, field := range []string{nodeRefField, providerIDField, nodeNameField} { // in the order of Match: addresses are looked up last
		for _, value := range known[field] {
			list, by := &clusterv1.MachineList{}, client.MatchingFields{field: c.within.Name + "/" + value}
			if err := c.list(ctx, list, client.InNamespace(c.within.Namespace), by, client.Limit(tooMany)); err != nil {
				return nil, fmt.Errorf("listing Machines by %s %s: %w", field, value, err)
			}
			if len(list.Items) >= tooMany { // ambiguous in any case
				return nil, nil
			}
			for i := range list.Items {
				if found := &list.Items[i]; c.isOwn(found) {
					candidates[found.UID] = found
				}
			}
		}
		if m = inherit.Match(node, slices.Collect(maps.Values(candidates))); m != nil {
			break
		}
	}
	if m == nil || c.Freshness != FromLive {
		return m, nil
	}
	now, err := read[clusterv1.Machine](ctx, c, "Machine", client.ObjectKeyFromObject(m), m.UID)
	if now == nil || !c.isOwn(now) {
		return nil, err
	}
	return inherit.Match(node, []*clusterv1.Machine{now}), nil
}

// PoolOf returns the MachinePool of a Node whose provider creates no Machines, or nil. A MachinePool lists the providerIDs of its Nodes.
// A Node that several MachinePools list belongs to none of them.
func (c *Chain) PoolOf(ctx context.Context, node *corev1.Node) (*clusterv1.MachinePool, error) {
	if node.Spec.ProviderID == "" {
		return nil, nil
	}
	list, by := &clusterv1.MachinePoolList{}, client.MatchingFields{providerIDField: c.within.Name + "/" + node.Spec.ProviderID}
	if err := c.list(ctx, list, client.InNamespace(c.within.Namespace), by, client.Limit(2)); err != nil { // two are ambiguous
		return nil, fmt.Errorf("listing MachinePools by providerID: %w", err)
	}
	own := slices.DeleteFunc(list.Items, func(mp clusterv1.MachinePool) bool { return !c.isOwn(&mp) })
	if len(own) != 1 {
		return nil, nil
	}
	if c.Freshness != FromLive {
		return &own[0], nil
	}
	now, err := read[clusterv1.MachinePool](ctx, c, "MachinePool", client.ObjectKeyFromObject(&own[0]), own[0].UID)
	if now == nil || !c.isOwn(now) || !slices.Contains(now.Spec.ProviderIDList, node.Spec.ProviderID) {
		return nil, err
	}
	return now, nil
}

// isOwn reports whether an object belongs to the chain's Cluster (see Within).
func (c *Chain) isOwn(object metav1.Object) bool {
	return c.within.Name != "" && c.within == types.NamespacedName{Namespace: object.GetNamespace(), Name: ClusterName(object)}
}
