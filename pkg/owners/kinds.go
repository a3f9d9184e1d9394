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

// Kind is a row of the table of kinds: all that differs between kinds when Heirloom decides what an object inherits.
type Kind struct {
	// Name is the name of a kind of Cluster API; empty for kinds of providers.
	Name string
	// Resource is what the kind's webhook is named after, such as "machinesets".
	Resource string
	// New returns an empty object of the type that objects of the kind are decoded into.
	New func() client.Object
	// Content returns the entries of an object at the places where it can inherit.
	Content func(ctx context.Context, c *Chain, object metav1.Object) (inherit.Object, error)

	// evaluate finds the object's owner and applies the rules to an object that is not skipped. The Cluster may be nil.
	evaluate func(ctx context.Context, c *Chain, object metav1.Object, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error)
}

// Table has all rows, owners before what they own.
var Table = []Kind{ControlPlanes, MachineDeployments, MachinePools, MachineSets, Machines, ExternalObjects}

// The rows of the table.
var (
	// ControlPlanes are those of all providers (rule 1). The kind's schema says where a control plane has what it inherits.
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

// row makes a row out of functions for the kind's own type.
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

// KindOf returns the row of an object's Go type, and whether there is one.
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

// ClusterName names the Cluster of an object of Cluster API or a provider.
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

// contentOfControlPlane returns what a control plane has. Without a layout, it has no place to inherit.
func contentOfControlPlane(ctx context.Context, c *Chain, cp *inherit.ControlPlane) (inherit.Object, error) {
	if c.Layout == nil {
		return inherit.OfControlPlane(cp, inherit.Layout{}), nil
	}
	layout, err := c.Layout(ctx, cp.GroupVersionKind())
	return inherit.OfControlPlane(cp, layout), err
}

// always returns the content of a kind that has it at the same places in every schema.
func always[P any](of func(P) inherit.Object) func(context.Context, *Chain, P) (inherit.Object, error) {
	return func(_ context.Context, _ *Chain, object P) (inherit.Object, error) { return of(object), nil }
}

// Evaluate decides what happens to an object, by what the chain knows. Webhooks, loop and plugin all call it, so that they also
// agree on which objects are skipped and who owns them.
func (k Kind) Evaluate(ctx context.Context, c *Chain, object metav1.Object, policy inherit.Policy) (Decision, error) {
	cluster, err := c.Cluster(ctx, object.GetNamespace(), ClusterName(object))
	if err != nil {
		return Decision{}, err
	}
	observed, enrolled, _ := c.Observes(ctx, cluster, policy)
	decided := skip(inherit.ClusterIsNotEnrolled)
	if enrolled || policy.SkipNothing {
		decided, err = k.decide(ctx, c, object, cluster, policy)
	}
	if m, ok := object.(*clusterv1.Machine); ok && decided.Untouched() {
		// Also if its owner cannot be read: the taints of a Machine must not stop the writes of others.
		if skipped := policy.SkipMachine(m, decided.Decision); !skipped.Untouched() {
			decided.Decision, err = skipped, nil
		}
	}
	decided = decided.withCapacity(policy.Of(cluster), templateFacts(object, policy))
	decided.Observed = observed
	return decided, err
}

// Observes reports whether decisions about what belongs to the Cluster are only observed, and whether the Cluster is enrolled, as far as the
// cache knows. With an error its ClusterClass cannot be read, which may have the label: then nothing is written.
func (c *Chain) Observes(ctx context.Context, cluster *clusterv1.Cluster, policy inherit.Policy) (observed, enrolled bool, err error) {
	cached := c.cachedOnly()
	cached.fresh = false
	class, err := cached.ClusterClass(ctx, cluster)
	mode, enrolled := policy.ModeOf(cluster, class)
	if err != nil {
		_, labelled := cluster.Labels[inherit.ModeLabel]
		return mode == inherit.Observe || !labelled, true, err
	}
	return mode == inherit.Observe, enrolled, nil
}

// decide is Evaluate for an object whose Cluster is known, without what the object tells cluster-autoscaler.
func (k Kind) decide(ctx context.Context, c *Chain, object metav1.Object, cluster *clusterv1.Cluster, policy inherit.Policy) (Decision, error) {
	check := policy
	if _, external := object.(*metav1.PartialObjectMetadata); external {
		check.WatchFilter = "" // providers need not copy its label
	}
	if why, skipped := check.Skips(object, cluster); skipped {
		return skip(why), nil
	}
	return k.evaluate(ctx, c, object, cluster, policy)
}

// Decision says what happens to an object of Cluster API, and where that is declared.
type Decision struct {
	inherit.Decision

	sources func(context.Context) inherit.Sources
	// declaredBy are the objects that declare for this one: its owner, or a topology's Cluster and ClusterClass.
	declaredBy []client.Object
	// current returns what the object has now, if it tells cluster-autoscaler of its Nodes (rule 14); otherwise it is nil.
	current func() inherit.Object
}

// Sources says where what is inherited is declared, for a warning or an Event.
func (d Decision) Sources(ctx context.Context) inherit.Sources {
	if d.sources == nil {
		return inherit.Sources{}
	}
	return d.sources(ctx)
}

// Propagator returns the owner whose controller in Cluster API writes what this object inherits: a MachineDeployment, a
// MachineSet or a MachinePool. It is nil where there is none: for what a topology or a control plane declares.
func (d Decision) Propagator() client.Object {
	for _, owner := range d.declaredBy {
		switch owner.(type) {
		case *clusterv1.MachineDeployment, *clusterv1.MachineSet, *clusterv1.MachinePool:
			return owner
		}
	}
	return nil
}

// ObservedGeneration returns the last generation of an object that its controller in Cluster API has handled; 0 if no controller
// has handled any.
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

// Behind reports whether the object was written later than all that declares for it, as the chain knows them (docs/design.md §5).
// The versions can be compared because all these kinds are custom resources, which an API server keeps in one etcd. If they are
// not numbers, the object counts as later.
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

// standsAlone is the decision about an object that has no owner. What an owner propagated to it before stays.
func standsAlone(current func() inherit.Object, sources func(context.Context) inherit.Sources) Decision {
	return Decision{Decision: inherit.Decision{Outcome: inherit.NoOwner}, sources: sources, current: current}
}

// withCapacity adds what the object tells cluster-autoscaler, once it has inherited the rest (rule 14). It is apart from the other
// rules because Nodes, which ask what their Machines' owners will be, have no use for it.
func (d Decision) withCapacity(policy inherit.Policy, facts []inherit.FactValue) Decision {
	if d.current == nil {
		return d
	}
	current := d.current()
	capacity, dropped := policy.Capacity(current, d.Desired, facts...)
	if d.Outcome == inherit.NoOwner && len(capacity) == 0 && !inherit.TellsCapacity(current) {
		return skip(inherit.NothingDeclares)
	}
	d.Desired.Top, d.Dropped = d.Desired.Top.WithYielding(capacity), append(d.Dropped, dropped...)
	return d
}

// templateFacts are the facts that a Machine template says of Machines to come, such as their failure domain.
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

// section returns what the topology of the Cluster and its class declare for the object, and the class; nil if they declare
// nothing.
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

// ofTopology applies rule 2 or 3, and rule 14, to objects whose own metadata and Machine template a topology declares.
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

// evaluateMachineSet applies rule 5 to a MachineSet's own annotations and rule 6 to the rest, or rule 14 to a MachineSet that
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

// from is the owner of the decision's Machine, or of the Machine that the external object belongs to.
func (d Decision) from(owner MachineOwner) Decision {
	d.Outcome = owner.Outcome
	if owner.Object != nil {
		d.declaredBy = []client.Object{owner.Object}
	}
	return d
}

// evaluateExternal applies rules 4 and 8 to an InfraMachine or a BootstrapConfig. Cluster API creates them before their
// Machine, and lets the Machine's owner own them until then.
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

// externalOwner returns the owner of the external object's Machine, and the object that decides whether to skip it: the Machine, or
// its owner while there is no Machine yet. The external object cannot decide, because providers need not copy the label of a watch
// filter. The result is nil if the external object belongs to no Machine, as those that a MachinePool owns.
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
	owner, err := c.cachedOnly().MachineOwner(ctx, m) // the request may have cost an API call already
	if _, pool := owner.Object.(*clusterv1.MachinePool); err != nil || pool {
		return MachineOwner{}, nil, err
	}
	return owner, m, nil
}

// creator returns the MachineSet or control plane that has created the external object for a Machine to come.
func (c *Chain) creator(ctx context.Context, external *metav1.PartialObjectMetadata) (MachineOwner, metav1.Object, error) {
	if metav1.GetControllerOfNoCopy(external) != nil {
		return MachineOwner{}, nil, nil
	}
	for _, ref := range external.OwnerReferences {
		group := groupOf(&ref)
		if group != inherit.ControlPlaneGroup && (group != clusterv1.GroupVersion.Group || ref.Kind != "MachineSet") || inherit.IsTemplate(ref.Kind) {
			continue
		}
		ref.Controller = new(true) // it owns the external object as it will own the Machine
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: external.Namespace, Name: external.Name, Labels: external.Labels, OwnerReferences: []metav1.OwnerReference{ref},
		}}
		m.Spec.ClusterName = ClusterName(external)
		owner, err := c.MachineOwner(ctx, m)
		return owner, owner.Object, err
	}
	return MachineOwner{}, nil, nil
}

// refersTo reports whether this is the Machine's InfraMachine or BootstrapConfig.
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
