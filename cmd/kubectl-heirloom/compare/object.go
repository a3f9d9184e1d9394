// SPDX-License-Identifier: Apache-2.0

// Package compare compares each entry of an object with the declarations of its owners. All commands use it, so that their answers agree.
// It evaluates objects with package owners, as webhooks and loop do, and takes the changes of the next write from package managedfields.
package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/store"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// World holds the data that comparisons read.
type World struct {
	Store    *store.Store
	Settings settings.Settings
	// Nodes returns a reader for a Cluster's workload cluster. If it is nil, trees end at the Machines.
	Nodes func(ctx context.Context, cluster types.NamespacedName) (client.Reader, error)
	// Now is the time that decides whether Nodes are new or in use.
	Now time.Time
}

// Object is an object, compared with the declarations of its owners.
type Object struct {
	inherit.Ref
	GVK     schema.GroupVersionKind
	Cluster types.NamespacedName
	// Has is the content of the object, with its layout. For a Node, only Node has the content.
	Has inherit.Object
	// Decided is the decision that is in force, and Would the decision if nothing were skipped. Both are empty for a Node.
	Decided, Would owners.Decision
	// Node is set if the object is a Node.
	Node *Node
	// Skipped says why Heirloom skips the object for now; empty if it does not. The entries then come from Would.
	Skipped inherit.Reason
	// Entries are sorted by kind and key.
	Entries []Entry
	// Sources are the objects that declare for this object. The sources of a Cluster or a ClusterClass are its own sections.
	Sources inherit.Sources
	// Problems holds the declarations that the object may not inherit.
	Problems error
	// Plan is the write that gives the object its inherited entries; nil for Nodes, and if nothing can be decided.
	Plan *managedfields.Plan
	// Err says why the object or its owners could not be read. The object then may have only a name.
	Err error
	// Parent and Children are set in a tree.
	Parent   *Object
	Children []*Object
}

// Declares reports whether an object inherits nothing, and declares for others.
func (o *Object) Declares() bool { return o.Kind == "Cluster" || o.Kind == "ClusterClass" }

// Observed reports whether Heirloom only reports its writes to the object.
func (o *Object) Observed() bool {
	if o.Node != nil {
		return o.Node.Decided.Observed
	}
	return o.Decided.Observed
}

// Wrong returns the entries that the next write changes: entries that are missing or differ.
func (o *Object) Wrong() []Entry {
	return slices.DeleteFunc(slices.Clone(o.Entries), func(e Entry) bool { return !e.Status.Wrong() })
}

// WhyUntouched says why Heirloom does not write the object for now, although it would inherit or should have an owner; empty otherwise. It
// is also empty if no owner declares anything for the object.
func (o *Object) WhyUntouched() inherit.Reason {
	switch {
	case o.Decided.Outcome == inherit.OwnerNotFound:
		return o.Decided.Reason
	case o.Skipped == inherit.NothingDeclares, o.Skipped == inherit.NotOfMachine:
		return ""
	}
	return o.Skipped
}

// Of compares an object of Cluster API or a provider with the declarations of its owners. For a Node, see Node.
func (w *World) Of(ctx context.Context, ref inherit.Ref, gvk schema.GroupVersionKind) *Object {
	o := &Object{Ref: ref, GVK: gvk, Cluster: types.NamespacedName{Namespace: ref.Object.GetNamespace(), Name: owners.ClusterName(ref.Object)}}
	w.fill(ctx, o)
	return o
}

// fill compares an object that has only its reference yet.
func (w *World) fill(ctx context.Context, o *Object) {
	switch object := o.Object.(type) {
	case *clusterv1.Cluster:
		o.Cluster.Name = object.Name
		o.Err = o.declares("name", sectionsOfCluster(object))
	case *clusterv1.ClusterClass:
		o.Err = o.declares("class", sectionsOfClass(object))
	case *unstructured.Unstructured: // a control plane, as it is stored
		cp := &inherit.ControlPlane{}
		o.Object, o.Err = cp, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, cp)
		o.Err = errors.Join(o.Err, w.compare(ctx, o))
	default:
		o.Err = w.compare(ctx, o)
	}
	Sort(o.Entries)
}

// compare compares an object of a kind that inherits. If its owners cannot be read, all its entries count as set here.
func (w *World) compare(ctx context.Context, o *Object) error {
	kind, known := owners.KindOf(o.Object)
	if !known {
		return fmt.Errorf("a %s inherits nothing", o.Kind)
	}
	chain := w.Store.Chain(o.Cluster)
	has, err := kind.Content(ctx, chain, o.Object)
	if err != nil {
		return fmt.Errorf("reading %s: %w", o.Ref, err)
	}
	managers, err := readManagers(o.Object.GetManagedFields())
	if err != nil {
		return err
	}
	o.Has = has
	desired, err := w.decide(ctx, chain, kind, o)
	var changes []managedfields.Change
	if o.Plan != nil {
		changes = o.Plan.Changes()
	}
	for _, p := range placesOf(o.Has, desired, changes) {
		o.Entries = append(o.Entries, p.entries(o, managers)...)
	}
	return err
}

// decide evaluates an object and returns its desired content.
func (w *World) decide(ctx context.Context, chain *owners.Chain, kind owners.Kind, o *Object) (inherit.Object, error) {
	policy := w.Settings.Policy()
	decided, err := kind.Evaluate(ctx, chain, o.Object, policy)
	if err != nil {
		return inherit.Object{}, err
	}
	if why, other := w.leavesOut(o); other && decided.Outcome != inherit.OwnerNotFound {
		decided = owners.Decision{Decision: inherit.Skip(why)}
	}
	o.Decided, o.Would = decided, decided
	if decided.Outcome == inherit.Skipped {
		o.Skipped, policy.SkipNothing = decided.Reason, true
		if o.Would, err = kind.Evaluate(ctx, chain, o.Object, policy); err != nil {
			return inherit.Object{}, err
		}
	}
	o.Sources = o.Would.Sources(ctx)
	if o.Would.Untouched() {
		return inherit.Object{}, nil
	}
	if o.Plan, err = managedfields.New(o.Object, o.Has, o.Would.Decision, nil); err != nil {
		return inherit.Object{}, fmt.Errorf("comparing %s with its inherited entries: %w", o.Ref, err)
	}
	o.Problems = errors.Join(o.Would.Problems(), o.Plan.LeftOut())
	// As long as it is unknown whether Cluster API propagates taints, taints that the object has count as inherited if it would inherit them
	// with the gate on.
	wide := o.Would
	if policy.ClusterAPITaints == inherit.PropagationUnknown {
		policy.ClusterAPITaints, policy.PaceEviction = inherit.PropagationEnabled, false
		if wide, err = kind.Evaluate(ctx, chain, o.Object, policy); err != nil {
			return inherit.Object{}, err
		}
	}
	admitted, _ := inherit.Fit(o.Has, wide.Desired, func() inherit.Object { return o.Has }, nil)
	return admitted, nil
}

// leavesOut reports whether the server never touches an object, with the reason: its namespace, or the API group of an external object.
func (w *World) leavesOut(o *Object) (inherit.Reason, bool) {
	why, other := w.Settings.LeavesOut(o.Object.GetNamespace())
	if _, external := o.Object.(*metav1.PartialObjectMetadata); external && !other && !slices.Contains(w.Settings.Config.ProviderGroups, o.GVK.Group) {
		return "its API group is not among the server's --additional-provider-groups", true
	}
	return why, other
}

// declares lists the declarations of an object for others, section by section. listKey is the field that identifies a section.
func (o *Object) declares(listKey string, sections []inherit.Declaration) error {
	managers, err := readManagers(o.Object.GetManagedFields())
	if err != nil {
		return err
	}
	for _, section := range sections {
		p := place{listKey: listKey, paths: section.Paths, has: contentOf(section.Content, section.Paths, true)}
		for of, v := range p.has {
			e := p.entry(o, of, v, managers(p.fieldPath(of)))
			e.From = inherit.Sources{All: []inherit.Declaration{section}}.Of(of)
			e.Source = SourceOf(e.From)
			o.Entries = append(o.Entries, e)
		}
	}
	o.Sources.All = sections
	return nil
}
