// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Kind is a row of the table of kinds. It holds all differences between kinds in decisions about objects.
type Kind struct {
	// Name is the name of a kind of Cluster API; empty for kinds of providers.
	Name string
	// Resource is the last part of the path of the kind's webhook, such as "machinesets".
	Resource string
	// New returns an empty object of the kind's Go type.
	New func() client.Object
	// Content returns the entries of an object at the places where it can inherit.
	Content func(ctx context.Context, c *Chain, object metav1.Object) (inherit.Object, error)

	// evaluate finds the object's owner and applies the rules to an object that is not skipped. The Cluster may be nil.
	evaluate func(ctx context.Context, c *Chain, object metav1.Object, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error)
}

// Table has all rows, owners before their children.
var Table = []Kind{ControlPlanes, MachineDeployments, MachinePools, MachineSets, Machines, ExternalObjects}

// The rows of the table.
var (
	// ControlPlanes are the control planes of all providers (rule 1). The kind's schema says in which fields they can inherit.
	ControlPlanes = row("", "controlplanes", evaluateControlPlane, func(ctx context.Context, c *Chain, cp *inherit.ControlPlane) (inherit.Object, error) {
		if c.Layout == nil {
			return inherit.Object{}, errors.New("the schema of control planes is unknown")
		}
		return contentOfControlPlane(ctx, c, cp)
	})
	// MachineDeployments inherit by rules 2 and 14.
	MachineDeployments = row("MachineDeployment", "machinedeployments", ofTopology(inherit.OfMachineDeployment, inherit.Policy.MachineDeployment), always(inherit.OfMachineDeployment))
	// MachinePools inherit by rules 3 and 14.
	MachinePools = row("MachinePool", "machinepools", ofTopology(inherit.OfMachinePool, inherit.Policy.MachinePool), always(inherit.OfMachinePool))
	// MachineSets inherit by rules 5 and 6, and by rule 14 where they stand alone.
	MachineSets = row("MachineSet", "machinesets", evaluateMachineSet, always(inherit.OfMachineSet))
	// Machines inherit by rules 4, 8 and 9.
	Machines = row("Machine", "machines", evaluateMachine, always(inherit.OfMachine))
	// ExternalObjects are InfraMachines and BootstrapConfigs of all providers (rules 4 and 8).
	ExternalObjects = row("", "siblings", evaluateExternal, always(inherit.OfExternal))
)

// row returns a row with functions for the kind's own Go type.
func row[T any, P interface {
	*T
	client.Object
}](
	name, resource string,
	evaluate func(context.Context, *Chain, P, *clusterv1.Cluster, inherit.Policy) (Decision, error),
	content func(context.Context, *Chain, P) (inherit.Object, error),
) Kind {
	return Kind{
		Name: name, Resource: resource,
		New: func() client.Object { return P(new(T)) },
		Content: func(ctx context.Context, c *Chain, object metav1.Object) (inherit.Object, error) {
			typed, ok := object.(P)
			if !ok {
				return inherit.Object{}, fmt.Errorf("expected a %T, got %T", typed, object)
			}
			return content(ctx, c, typed)
		},
		evaluate: func(ctx context.Context, c *Chain, object metav1.Object, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
			typed, ok := object.(P)
			if !ok {
				return Decision{}, fmt.Errorf("expected a %T, got %T", typed, object)
			}
			return evaluate(ctx, c, typed, cluster, policy)
		},
	}
}

// KindOf returns the row of an object's Go type, and whether it exists.
func KindOf(object metav1.Object) (Kind, bool) {
	switch object.(type) {
	case *inherit.ControlPlane:
		return ControlPlanes, true
	case *clusterv1.MachineDeployment:
		return MachineDeployments, true
	case *clusterv1.MachinePool:
		return MachinePools, true
	case *clusterv1.MachineSet:
		return MachineSets, true
	case *clusterv1.Machine:
		return Machines, true
	case *metav1.PartialObjectMetadata:
		return ExternalObjects, true
	}
	return Kind{}, false
}

// ClusterName returns the name of the Cluster of an object of Cluster API or of a provider; empty if the object names none.
func ClusterName(object metav1.Object) string {
	switch o := object.(type) {
	case *clusterv1.MachineDeployment:
		return o.Spec.ClusterName
	case *clusterv1.MachinePool:
		return o.Spec.ClusterName
	case *clusterv1.MachineSet:
		return o.Spec.ClusterName
	case *clusterv1.Machine:
		return o.Spec.ClusterName
	}
	return object.GetLabels()[clusterv1.ClusterNameLabel]
}

// contentOfControlPlane returns the entries of a control plane at the places where it can inherit. Without c.Layout, there is no place.
func contentOfControlPlane(ctx context.Context, c *Chain, cp *inherit.ControlPlane) (inherit.Object, error) {
	if c.Layout == nil {
		return inherit.OfControlPlane(cp, inherit.Layout{}), nil
	}
	layout, err := c.Layout(ctx, cp.GroupVersionKind())
	return inherit.OfControlPlane(cp, layout), err
}

// always returns the Content function of a kind whose entries are at the same places in every schema.
func always[P any](of func(P) inherit.Object) func(context.Context, *Chain, P) (inherit.Object, error) {
	return func(_ context.Context, _ *Chain, object P) (inherit.Object, error) { return of(object), nil }
}

// Evaluate decides what happens to an object with the data of the chain. Webhooks, loop and plugin all call it, so they also agree on the
// objects to skip and on the owner of an object.
func (k Kind) Evaluate(ctx context.Context, c *Chain, object metav1.Object, policy inherit.Policy) (Decision, error) {
	cluster, err := c.Cluster(ctx, object.GetNamespace(), ClusterName(object))
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
	if decided.current != nil {
		decided = decided.withCapacity(ofCluster, templateFacts(object, policy))
	}
	decided.Observed = observed
	return decided, err
}

// Observes reports whether decisions about objects of the Cluster are only observed, and whether the Cluster is enrolled, according to
// the cache, and returns the policy for its Nodes. An error says that its ClusterClass, which may have the mode label, cannot be read; it
// then names no keys and, unless the Cluster has the label itself, decisions are only observed.
func (c *Chain) Observes(
	ctx context.Context, cluster *clusterv1.Cluster, policy inherit.Policy,
) (ofCluster inherit.Policy, observed, enrolled bool, err error) {
	cached := c.cachedOnly()
	cached.fresh = false
	class, err := cached.ClusterClass(ctx, cluster)
	mode, enrolled := policy.ModeOf(cluster, class)
	if err != nil {
		_, labelled := cluster.Labels[inherit.ModeLabel]
		return policy.Of(cluster, nil), mode == inherit.Observe || !labelled, true, err
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
		return skip(inherit.ClusterDoesNotExist), nil // it may be paused or opted out; its event wakes the object
	}
	return k.evaluate(ctx, c, object, cluster, policy)
}

// Decision says what happens to an object of Cluster API, and which objects declare its entries.
type Decision struct {
	inherit.Decision

	sources func(context.Context) inherit.Sources
	// declaredBy are the objects that declare the entries: the owner, or the Cluster and the ClusterClass of a topology.
	declaredBy []client.Object
	// current returns the present entries of an object to which rule 14 applies (cluster-autoscaler); nil for other objects.
	current func() inherit.Object
}

// Sources returns the sources of the inherited entries, for a warning or an Event.
func (d Decision) Sources(ctx context.Context) inherit.Sources {
	if d.sources == nil {
		return inherit.Sources{}
	}
	return d.sources(ctx)
}

// Propagator returns the owner whose controller in Cluster API propagates entries to this object: a MachineDeployment, a MachineSet or a
// MachinePool. It is nil for an object that inherits from a topology or a control plane.
func (d Decision) Propagator() client.Object {
	for _, owner := range d.declaredBy {
		switch owner.(type) {
		case *clusterv1.MachineDeployment, *clusterv1.MachineSet, *clusterv1.MachinePool:
			return owner
		}
	}
	return nil
}

// ObservedGeneration returns the last generation of an object that its controller in Cluster API has handled; 0 if no controller has
// handled the object.
func ObservedGeneration(object client.Object) int64 {
	switch o := object.(type) {
	case *clusterv1.MachineDeployment:
		return o.Status.ObservedGeneration
	case *clusterv1.MachineSet:
		return o.Status.ObservedGeneration
	case *clusterv1.MachinePool:
		return o.Status.ObservedGeneration
	case *clusterv1.Machine:
		return o.Status.ObservedGeneration
	}
	return 0
}

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

func inherits(
	desired inherit.Object, dropped inherit.Drops, sources func(context.Context) inherit.Sources, declaredBy ...client.Object,
) Decision {
	return Decision{
		Decision: inherit.Decision{Outcome: inherit.Inherits, Desired: desired, Dropped: dropped}, sources: sources, declaredBy: declaredBy,
	}
}

// standsAlone is the decision about an object without an owner. Entries that an earlier owner propagated stay.
func standsAlone(current func() inherit.Object, sources func(context.Context) inherit.Sources) Decision {
	return Decision{Decision: inherit.Decision{Outcome: inherit.NoOwner}, sources: sources, current: current}
}

// withCapacity adds the annotations for cluster-autoscaler, computed from the entries of the object after inheritance (rule 14). It is
// separate from the other rules because decisions about Nodes, which evaluate the whole owner chain, have no use for it.
func (d Decision) withCapacity(policy inherit.Policy, facts []inherit.FactValue) Decision {
	current := d.current()
	capacity, dropped := policy.Capacity(current, d.Desired, facts...)
	if d.Outcome == inherit.NoOwner && len(capacity) == 0 && !inherit.TellsCapacity(current) {
		return skip(inherit.NothingDeclares)
	}
	d.Desired.Top, d.Dropped = d.Desired.Top.WithYielding(capacity), append(d.Dropped, dropped...)
	return d
}

// templateFacts returns the facts about future Machines in a Machine template, such as their failure domain.
func templateFacts(object metav1.Object, policy inherit.Policy) (facts []inherit.FactValue) {
	if len(policy.Facts) == 0 {
		return nil
	}
	var template clusterv1.MachineTemplateSpec
	switch o := object.(type) {
	case *clusterv1.MachineDeployment:
		template = o.Spec.Template
	case *clusterv1.MachineSet:
		template = o.Spec.Template
	}
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Labels: template.Labels, Annotations: template.Annotations}, Spec: template.Spec}
	for _, f := range policy.Facts {
		if f.OfMachines() {
			facts = append(facts, f.InMachine(m))
		}
	}
	return facts
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

// evaluateControlPlane applies rule 1.
func evaluateControlPlane(ctx context.Context, c *Chain, cp *inherit.ControlPlane, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	section, class, err := c.section(ctx, cp, cluster)
	if err != nil || section == nil {
		return skip(inherit.NothingDeclares), err
	}
	current, err := contentOfControlPlane(ctx, c, cp)
	if err != nil {
		return Decision{}, err
	}
	desired, dropped := policy.ControlPlane(*section, current)
	sources := func(ctx context.Context) inherit.Sources { return c.quiet().byTopology(ctx, cp, cp) }
	return inherits(desired, dropped, sources, cluster, class), nil
}

// ofTopology returns the evaluate function of a kind whose own metadata and Machine template a topology declares (rules 2, 3 and 14).
func ofTopology[P inherit.Owner](
	of func(P) inherit.Object, apply func(inherit.Policy, inherit.Section, P) (inherit.Object, inherit.Drops),
) func(context.Context, *Chain, P, *clusterv1.Cluster, inherit.Policy) (Decision, error) {
	return func(ctx context.Context, c *Chain, object P, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
		section, class, err := c.section(ctx, object, cluster)
		if err != nil {
			return Decision{}, err
		}
		current, sources := func() inherit.Object { return of(object) }, c.sourcesBy(object, MachineOwner{Object: object})
		decided := standsAlone(current, sources)
		if section != nil {
			desired, dropped := apply(policy, *section, object)
			decided = inherits(desired, dropped, sources, cluster, class)
			decided.current = current
		}
		return decided, nil
	}
}

// evaluateMachineSet applies rule 5 to a MachineSet's own annotations and rule 6 to its other entries, or rule 14 to a MachineSet that
// stands alone.
func evaluateMachineSet(ctx context.Context, c *Chain, ms *clusterv1.MachineSet, _ *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	sources := func(ctx context.Context) inherit.Sources { return c.quiet().machineSetSources(ctx, ms) }
	if !inherit.OfMachineDeployments(ms) {
		return standsAlone(func() inherit.Object { return inherit.OfMachineSet(ms) }, sources), nil
	}
	md, err := c.MachineDeployment(ctx, ms)
	if err != nil || md == nil {
		return ownerNotFound, err
	}
	desired, dropped := policy.MachineSet(md, ms)
	return inherits(desired, dropped, sources, md), nil
}

// evaluateMachine applies rules 4, 8 and 9.
func evaluateMachine(ctx context.Context, c *Chain, m *clusterv1.Machine, _ *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	owner, err := c.MachineOwner(ctx, m)
	if err != nil || owner.Outcome == inherit.OwnerNotFound {
		return ownerNotFound, err
	}
	desired, dropped := policy.MachineFrom(owner.Template, m)
	decided := inherits(desired, dropped, func(ctx context.Context) inherit.Sources {
		return c.quiet().machineSources(ctx, m, owner, nil)
	})
	decided.TaintsRefused = policy.ClusterAPITaints == inherit.PropagationDisabled
	return decided.from(owner), nil
}

// from returns the decision with the outcome of the owner look-up and with the owner in declaredBy.
func (d Decision) from(owner MachineOwner) Decision {
	d.Outcome = owner.Outcome
	if owner.Object != nil {
		d.declaredBy = []client.Object{owner.Object}
	}
	return d
}

// evaluateExternal applies rules 4 and 8 to an InfraMachine or a BootstrapConfig. Cluster API creates it before its Machine. Until the
// Machine exists, the Machine's owner owns it.
func evaluateExternal(
	ctx context.Context, c *Chain, external *metav1.PartialObjectMetadata, cluster *clusterv1.Cluster, policy inherit.Policy,
) (Decision, error) {
	if ClusterName(external) == "" || inherit.IsTemplate(external.Kind) {
		return skip(inherit.NotOfMachine), nil
	}
	owner, instance, err := c.externalOwner(ctx, external)
	if err != nil || owner.Outcome == inherit.OwnerNotFound {
		return ownerNotFound, err
	}
	if instance == nil {
		return skip(inherit.NotOfMachine), nil
	}
	if why, skipped := policy.Skips(instance, cluster); skipped {
		return skip(why), nil
	}
	below := instance
	if isOfTopology(external) {
		below = external
	}
	desired, dropped := policy.External(owner.Template, inherit.OfExternal(external))
	return inherits(desired, dropped, c.sourcesBy(below, owner)).from(owner), nil
}

// externalOwner returns the owner of the external object's Machine, and the object that decides whether to skip: the Machine, or its
// owner as long as there is no Machine. The external object cannot decide, because providers need not copy the label of a watch filter.
// The second result is nil if the external object belongs to no Machine, or to a Machine of a MachinePool.
func (c *Chain) externalOwner(ctx context.Context, external *metav1.PartialObjectMetadata) (MachineOwner, metav1.Object, error) {
	m := &clusterv1.Machine{}
	found, err := c.controller(ctx, external, "Machine", m)
	if err != nil {
		return MachineOwner{}, nil, err
	}
	if !found {
		return c.creator(ctx, external)
	}
	if m.Spec.ClusterName != ClusterName(external) || !refersTo(m, external) {
		return MachineOwner{}, nil, nil
	}
	owner, err := c.cachedOnly().MachineOwner(ctx, m) // the read of the Machine may have cost an API call already
	if _, pool := owner.Object.(*clusterv1.MachinePool); err != nil || pool {
		return MachineOwner{}, nil, err
	}
	return owner, m, nil
}

// creator returns the MachineSet or control plane that has created the external object for a future Machine.
func (c *Chain) creator(ctx context.Context, external *metav1.PartialObjectMetadata) (MachineOwner, metav1.Object, error) {
	if metav1.GetControllerOfNoCopy(external) != nil {
		return MachineOwner{}, nil, nil
	}
	for _, ref := range external.OwnerReferences {
		group := groupOf(&ref)
		if group != inherit.ControlPlaneGroup && (group != clusterv1.GroupVersion.Group || ref.Kind != "MachineSet") || inherit.IsTemplate(ref.Kind) {
			continue
		}
		ref.Controller = new(true) // as in the future Machine
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: external.Namespace, Name: external.Name, Labels: external.Labels, OwnerReferences: []metav1.OwnerReference{ref},
		}}
		m.Spec.ClusterName = ClusterName(external)
		owner, err := c.MachineOwner(ctx, m)
		return owner, owner.Object, err
	}
	return MachineOwner{}, nil, nil
}

// refersTo reports whether the external object is the Machine's InfraMachine or BootstrapConfig.
func refersTo(m *clusterv1.Machine, external *metav1.PartialObjectMetadata) bool {
	kind := external.GroupVersionKind().GroupKind()
	return slices.ContainsFunc(ExternalRefs(m), func(ref clusterv1.ContractVersionedObjectReference) bool {
		return ref.GroupKind() == kind && ref.Name == external.Name
	})
}

// ExternalRefs returns the references of a Machine to its InfraMachine and its BootstrapConfig.
func ExternalRefs(m *clusterv1.Machine) []clusterv1.ContractVersionedObjectReference {
	refs := []clusterv1.ContractVersionedObjectReference{m.Spec.InfrastructureRef, m.Spec.Bootstrap.ConfigRef}
	return slices.DeleteFunc(refs, func(ref clusterv1.ContractVersionedObjectReference) bool { return ref.Kind == "" || ref.Name == "" })
}
