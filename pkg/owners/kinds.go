// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// Kind is a row of the table of kinds.
type Kind struct {
	// Name is the name of a kind of Cluster API; empty for kinds of providers.
	Name string
	// Resource is the last part of the path of the kind's webhook, such as "machinesets".
	Resource string
	// New returns an empty object of the kind's Go type, and NewList an empty list; nil for kinds of providers.
	New     func() client.Object
	NewList func() client.ObjectList
}

// The rows of the table.
var (
	// ControlPlanes are the control planes of all providers (rule 1). The kind's schema says in which fields they can inherit.
	ControlPlanes = Kind{"", "controlplanes", func() client.Object { return &inherit.ControlPlane{} }, nil}
	// MachineDeployments inherit by rules 2 and 14.
	MachineDeployments = Kind{
		"MachineDeployment", "machinedeployments",
		func() client.Object { return &clusterv1.MachineDeployment{} }, func() client.ObjectList { return &clusterv1.MachineDeploymentList{} },
	}
	// MachinePools inherit by rules 3 and 14.
	MachinePools = Kind{
		"MachinePool", "machinepools",
		func() client.Object { return &clusterv1.MachinePool{} }, func() client.ObjectList { return &clusterv1.MachinePoolList{} },
	}
	// MachineSets inherit by rules 5 and 6, and by rule 14 where they stand alone.
	MachineSets = Kind{
		"MachineSet", "machinesets",
		func() client.Object { return &clusterv1.MachineSet{} }, func() client.ObjectList { return &clusterv1.MachineSetList{} },
	}
	// Machines inherit by rules 4, 8 and 9.
	Machines = Kind{
		"Machine", "machines",
		func() client.Object { return &clusterv1.Machine{} }, func() client.ObjectList { return &clusterv1.MachineList{} },
	}
	// ExternalObjects are InfraMachines and BootstrapConfigs of all providers (rules 4 and 8).
	ExternalObjects = Kind{"", "siblings", func() client.Object { return &metav1.PartialObjectMetadata{} }, nil}
)

// Table has all rows, owners before their children.
var Table = []Kind{ControlPlanes, MachineDeployments, MachinePools, MachineSets, Machines, ExternalObjects}

// child is an object of a kind in the table, with the rules of its kind.
type child struct {
	Kind
	// clusterName is the name of the object's Cluster; empty if the object names none.
	clusterName string
	// observedGeneration is the last generation that the object's controller in Cluster API has handled; 0 for kinds of providers, which need
	// not propagate anything.
	observedGeneration int64
	rules
}

// rules are the methods of a kind.
type rules interface {
	// content returns the entries of the object at the places where it can inherit.
	content(ctx context.Context, c *Chain) (inherit.Object, error)
	// evaluate finds the object's owner and applies the rules to an object that is not skipped. The Cluster may be nil.
	evaluate(ctx context.Context, c *Chain, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error)
	// sources returns the sources of the entries that the object inherits by a decision.
	sources(ctx context.Context, c *Chain, d Decision) inherit.Sources
}

// owner has the methods of a kind whose objects declare for Machines.
type owner interface {
	// declarations returns the declarations of the object, and of the objects above it. below is the object or an object below it.
	declarations(ctx context.Context, c *Chain, below metav1.Object) inherit.Sources
}

// searched is a kind that the cache finds by more than the Cluster. index adds the values of the object, by field.
type searched interface {
	index(values map[string][]string)
}

// trimmed is a kind with fields that no rule reads. trim drops them from a cached object.
type trimmed interface{ trim() }

// childOf returns an object with the rules of its kind. It has no rules if its kind is not in the table.
func childOf(object any) child {
	switch o := object.(type) {
	case *inherit.ControlPlane:
		return child{ControlPlanes, o.Labels[clusterv1.ClusterNameLabel], 0, controlPlane{o}}
	case *clusterv1.MachineDeployment:
		return child{MachineDeployments, o.Spec.ClusterName, o.Status.ObservedGeneration, machineDeployment{o}}
	case *clusterv1.MachinePool:
		return child{MachinePools, o.Spec.ClusterName, o.Status.ObservedGeneration, machinePool{o}}
	case *clusterv1.MachineSet:
		return child{MachineSets, o.Spec.ClusterName, o.Status.ObservedGeneration, machineSet{o}}
	case *clusterv1.Machine:
		return child{Machines, o.Spec.ClusterName, o.Status.ObservedGeneration, machine{o}}
	case *metav1.PartialObjectMetadata:
		return child{ExternalObjects, o.Labels[clusterv1.ClusterNameLabel], 0, external{o}}
	case *clusterv1.Cluster:
		return child{observedGeneration: o.Status.ObservedGeneration}
	case *clusterv1.ClusterClass:
		return child{observedGeneration: o.Status.ObservedGeneration}
	case metav1.Object:
		return child{clusterName: o.GetLabels()[clusterv1.ClusterNameLabel]}
	}
	return child{}
}

// KindOf returns the row of an object's Go type, and whether it exists.
func KindOf(object metav1.Object) (Kind, bool) {
	child := childOf(object)
	return child.Kind, child.rules != nil
}

// ClusterName returns the name of the Cluster of an object of Cluster API or of a provider; empty if the object names none.
func ClusterName(object metav1.Object) string { return childOf(object).clusterName }

// ObservedGeneration returns the last generation of an object that its controller in Cluster API has handled; 0 if no controller has
// handled the object.
func ObservedGeneration(object client.Object) int64 { return childOf(object).observedGeneration }

// of returns the rules for an object of the kind.
func (k Kind) of(object metav1.Object) (rules, error) {
	if child := childOf(object); child.rules != nil && child.Resource == k.Resource {
		return child.rules, nil
	}
	return nil, fmt.Errorf("expected a %T, got %T", k.New(), object)
}

// Content returns the entries of an object at the places where it can inherit.
func (k Kind) Content(ctx context.Context, c *Chain, object metav1.Object) (inherit.Object, error) {
	rules, err := k.of(object)
	if err != nil {
		return inherit.Object{}, err
	}
	return rules.content(ctx, c)
}

// Evaluate decides what happens to an object with the data of the chain. Webhooks, loop and plugin all call it, so they also agree on the
// objects to skip and on the owner of an object.
func (k Kind) Evaluate(ctx context.Context, c *Chain, object metav1.Object, policy inherit.Policy) (Decision, error) {
	cluster, err := c.Cluster(ctx, object.GetNamespace(), ClusterName(object))
	if cluster == nil && err == nil && c.Freshness == FromCacheElseLive { // its first objects may follow a Cluster at once
		cluster, err = c.Reading(FromLive).Cluster(ctx, object.GetNamespace(), ClusterName(object))
	}
	if err != nil {
		return Decision{}, err
	}
	ofCluster, observed, enrolled, _ := c.Observes(ctx, cluster, policy)
	decided := skip(inherit.ClusterIsNotEnrolled)
	if enrolled || policy.SkipNothing {
		decided, err = k.decide(ctx, c, object, cluster, policy)
	}
	if m, ok := object.(*clusterv1.Machine); ok && decided.Untouched() {
		// Even if its owner cannot be read: the taints of a Machine must not block writes by other clients.
		if skipped := policy.SkipMachine(m, decided.Decision); !skipped.Untouched() {
			decided.Decision, err = skipped, nil
		}
	}
	decided = decided.withCapacity(ofCluster)
	decided.Observed = observed
	return decided, err
}

// Plan is the decision about an object, and the write that carries it out.
type Plan struct {
	Decision
	// Plan is nil if the object stays as it is.
	*managedfields.Plan
	// Current are the entries of the object at the places where it can inherit.
	Current inherit.Object
}

// Plan plans for an object with the data of the chain. stored is the object as it is stored, maybe of another Go type. During an update, old
// returns the content before the update; otherwise old is nil. Webhook and loop call it.
func (k Kind) Plan(
	ctx context.Context, c *Chain, object, stored metav1.Object, policy inherit.Policy, old func() (inherit.Object, error),
) (p Plan, err error) {
	if p.Decision, err = k.Evaluate(ctx, c, object, policy); err != nil || p.Untouched() {
		return p, err
	}
	if p.Current, err = k.Content(ctx, c, object); err != nil {
		return p, err
	}
	p.Plan, err = managedfields.New(stored, p.Current, p.Decision.Decision, old)
	return p, err
}

// Observes reports whether decisions about objects of the Cluster are only observed, and whether the Cluster is enrolled, according to
// the cache, and returns the policy for its Nodes. An error says that its ClusterClass, which may have the mode label, cannot be read; it
// then names no keys and, unless the Cluster has the label itself, decisions are only observed.
func (c *Chain) Observes(
	ctx context.Context, cluster *clusterv1.Cluster, policy inherit.Policy,
) (ofCluster inherit.Policy, observed, enrolled bool, err error) {
	class, err := c.Reading(FromCachePromptly).ClusterClass(ctx, cluster)
	mode, enrolled := policy.ModeOf(cluster, class)
	if err != nil {
		_, labeled := cluster.Labels[inherit.ModeLabel]
		return policy.Of(cluster, nil), mode == inherit.Observe || !labeled, true, err
	}
	return policy.Of(cluster, class), mode == inherit.Observe, enrolled, nil
}

// decide is Evaluate for an object whose Cluster is known, without the mode and without the annotations for cluster-autoscaler.
func (k Kind) decide(ctx context.Context, c *Chain, object metav1.Object, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	check := policy
	if _, external := object.(*metav1.PartialObjectMetadata); external {
		check.WatchFilter = "" // providers need not copy the label of the watch filter
	}
	if why, skipped := check.Skips(object, cluster); skipped {
		return skip(why), nil
	}
	if cluster == nil && ClusterName(object) != "" && !policy.SkipNothing {
		return skip(inherit.ClusterDoesNotExist), nil // it may be paused or skipped; its event wakes the object
	}
	rules, err := k.of(object)
	if err != nil {
		return Decision{}, err
	}
	decided, err := rules.evaluate(ctx, c, cluster, policy)
	decided.rules, decided.chain = rules, c
	return decided, err
}

// Decision says what happens to an object of Cluster API, and which objects declare its entries.
type Decision struct {
	inherit.Decision

	rules rules
	chain *Chain
	// owner is the owner of a Machine. For an external object, it is the owner of its Machine, and below is the Machine or its owner.
	owner MachineOwner
	below metav1.Object
	// declaredBy are the objects that declare the entries: the owner, or the Cluster and the ClusterClass of a topology.
	declaredBy []client.Object
	// current are the present entries of an object to which rule 14 applies (cluster-autoscaler), and future is a Machine of its template;
	// nil for other objects.
	current *inherit.Object
	future  *clusterv1.Machine
}

// Sources returns the sources of the inherited entries, for a warning or an Event. The source of a warning is not worth an API call: an
// owner that is not cached is named without its content.
func (d Decision) Sources(ctx context.Context) inherit.Sources {
	if d.rules == nil || d.Outcome == inherit.Skipped || d.Outcome == inherit.OwnerNotFound {
		return inherit.Sources{}
	}
	return d.rules.sources(ctx, d.chain.Reading(FromCache), d)
}

// DeclaredBy returns the objects that declare the entries: the owner, or the Cluster and the ClusterClass of a topology.
func (d Decision) DeclaredBy() []client.Object { return d.declaredBy }

// Behind reports whether the object was written later than all objects that declare its entries, in the versions that the chain has
// (docs/design.md §5). The resourceVersions are comparable because all these kinds are custom resources, which an API server keeps in one
// etcd. If they are not numbers, the object counts as later.
func (d Decision) Behind(object client.Object) bool {
	for _, owner := range d.declaredBy {
		order, err := resourceversion.CompareResourceVersion(owner.GetResourceVersion(), object.GetResourceVersion())
		if err == nil && order >= 0 {
			return false
		}
	}
	return len(d.declaredBy) > 0
}

func skip(why inherit.Reason) Decision {
	return Decision{Decision: inherit.Skip(why)}
}

var ownerNotFound = Decision{Decision: inherit.Decision{Outcome: inherit.OwnerNotFound, Reason: inherit.OwnerIsNotFound}}

func inherits(desired inherit.Object, dropped inherit.Drops, declaredBy ...client.Object) Decision {
	return Decision{Decision: inherit.Decision{Outcome: inherit.Inherits, Desired: desired, Dropped: dropped}, declaredBy: declaredBy}
}

// standsAlone is the decision about an object without an owner. Entries that an earlier owner propagated stay.
var standsAlone = Decision{Decision: inherit.Decision{Outcome: inherit.NoOwner}}

// from returns the decision with the outcome of the owner look-up and with the owner in declaredBy.
func (d Decision) from(owner MachineOwner) Decision {
	d.Outcome, d.owner = owner.Outcome, owner
	if owner.Object != nil {
		d.declaredBy = []client.Object{owner.Object}
	}
	return d
}

// announcing returns the decision about an object to which rule 14 applies. Its Machine template may have facts about future Machines, such
// as their failure domain.
func (d Decision) announcing(current inherit.Object, template clusterv1.MachineTemplateSpec) Decision {
	d.current = &current
	d.future = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Labels: template.Labels, Annotations: template.Annotations}, Spec: template.Spec}
	return d
}

// withCapacity adds the annotations for cluster-autoscaler, computed from the entries of the object after inheritance (rule 14). It is
// separate from the other rules because decisions about Nodes, which evaluate the whole owner chain, have no use for it.
func (d Decision) withCapacity(policy inherit.Policy) Decision {
	if d.current == nil {
		return d
	}
	var facts []inherit.FactValue
	for _, f := range policy.Facts {
		if f.OfMachines() {
			facts = append(facts, f.InMachine(d.future))
		}
	}
	capacity, dropped := policy.Capacity(*d.current, d.Desired, facts...)
	if d.Outcome == inherit.NoOwner && len(capacity) == 0 && !inherit.TellsCapacity(*d.current) {
		return skip(inherit.NothingDeclares)
	}
	d.Desired.Top, d.Dropped = d.Desired.Top.WithYielding(capacity), append(d.Dropped, dropped...)
	return d
}

// section returns the declarations of the Cluster's topology and of its ClusterClass for the object, and the ClusterClass; nil if they
// declare nothing.
func (c *Chain) section(ctx context.Context, object metav1.Object, cluster *clusterv1.Cluster) (*inherit.Section, *clusterv1.ClusterClass, error) {
	class, err := c.ClusterClass(ctx, cluster)
	if err != nil || class == nil {
		return nil, nil, err
	}
	return inherit.SectionOf(cluster, class, object), class, nil
}

// controlPlane is a control plane of any provider.
type controlPlane struct{ *inherit.ControlPlane }

func (o controlPlane) content(ctx context.Context, c *Chain) (inherit.Object, error) {
	if c.Layout == nil {
		return inherit.Object{}, errors.New("the schema of control planes is unknown")
	}
	return contentOfControlPlane(ctx, c, o.ControlPlane)
}

// contentOfControlPlane returns the entries of a control plane at the places where it can inherit. Without c.Layout, there is no place.
func contentOfControlPlane(ctx context.Context, c *Chain, cp *inherit.ControlPlane) (inherit.Object, error) {
	if c.Layout == nil {
		return inherit.OfControlPlane(cp, inherit.Layout{}), nil
	}
	layout, err := c.Layout(ctx, cp.GroupVersionKind())
	return inherit.OfControlPlane(cp, layout), err
}

// evaluate applies rule 1.
func (o controlPlane) evaluate(ctx context.Context, c *Chain, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	section, class, err := c.section(ctx, o.ControlPlane, cluster)
	if err != nil || section == nil {
		return skip(inherit.NothingDeclares), err
	}
	current, err := contentOfControlPlane(ctx, c, o.ControlPlane)
	if err != nil {
		return Decision{}, err
	}
	desired, dropped := policy.ControlPlane(*section, current)
	return inherits(desired, dropped, cluster, class), nil
}

func (o controlPlane) sources(ctx context.Context, c *Chain, _ Decision) inherit.Sources {
	return c.byTopology(ctx, o.ControlPlane, o.ControlPlane)
}
