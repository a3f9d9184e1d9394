// SPDX-License-Identifier: Apache-2.0

// Package explain shows where each label, annotation, taint and field of an object comes from, and why a declaration did not arrive.
// Package compare compares the object with the declarations of its owners, and explain looks further up from there.
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/store"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// Explainer shows where the entries of an object come from.
type Explainer struct {
	compare.World
	// Cluster is the Cluster whose Nodes are explained, and Namespace the only namespace in which Machines may name a Node, if the user has
	// set them.
	Cluster   types.NamespacedName
	Namespace string
	// Key is the only key of interest; empty for all keys.
	Key string

	workloads map[types.NamespacedName]func() (client.Reader, error)
}

// New returns an Explainer of a world, whose Nodes must be set.
func New(world compare.World) *Explainer {
	return &Explainer{World: world, workloads: map[types.NamespacedName]func() (client.Reader, error){}}
}

// Object names an object to explain.
type Object struct {
	schema.GroupVersionKind
	Key types.NamespacedName
}

// IsNode reports whether a kind is Node.
func IsNode(gvk schema.GroupVersionKind) bool { return gvk.Group == "" && gvk.Kind == "Node" }

// All explains objects. An error about an object does not stop the others.
func (x *Explainer) All(ctx context.Context, objects []Object) (found []*Explanation, err error) {
	if last := len(objects) - 1; last > 3 { // a list is faster than a read of each owner; without the right to list, it fails
		namespace := cmp.Or(objects[0].Key.Namespace, x.Cluster.Namespace, x.Namespace)
		if objects[0].Key.Namespace != objects[last].Key.Namespace {
			namespace = ""
		}
		_ = x.Store.Prefetch(ctx, namespace)
	}
	for _, object := range objects {
		e, wrong := x.Explain(ctx, object)
		if err = errors.Join(err, wrong); wrong == nil {
			found = append(found, e)
		}
	}
	return found, err
}

// Explain explains an object.
func (x *Explainer) Explain(ctx context.Context, object Object) (*Explanation, error) {
	o, err := x.read(ctx, object.GroupVersionKind, object.Key)
	if err != nil {
		return nil, err
	}
	if o.Err != nil && len(o.Entries) == 0 {
		return nil, o.Err
	}
	e := &Explanation{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: "Explanation"}, Object: o.String(), Entries: []Entry{}, of: o, named: cli.NameOf(object.GroupKind(), object.Key.Name),
	}
	if o.Node != nil && o.Node.Would.Inherits() {
		e.Cluster = o.Cluster.String()
	}
	for _, entry := range o.Entries {
		if x.Key == "" || entry.Is(x.Key) {
			e.Entries = append(e.Entries, Entry{Entry: entry})
		}
	}
	e.Notes = x.notes(o)
	if !o.Declares() && o.Err == nil {
		x.addReasons(ctx, e)
	}
	slices.SortStableFunc(e.Entries, func(a, b Entry) int { return compare.Order(a.Entry, b.Entry) })
	if x.Key != "" && len(e.Entries) == 0 {
		e.Notes = append([]string{nowhere(o, x.Key)}, e.Notes...)
	}
	return e, nil
}

// read reads an object and compares it.
func (x *Explainer) read(ctx context.Context, gvk schema.GroupVersionKind, key types.NamespacedName) (*compare.Object, error) {
	object := map[string]client.Object{"Cluster": &clusterv1.Cluster{}, "ClusterClass": &clusterv1.ClusterClass{}}[gvk.Kind]
	for _, kind := range owners.Table {
		if kind.Name == gvk.Kind {
			object = kind.New()
		}
	}
	switch {
	case IsNode(gvk):
		return x.node(ctx, key.Name)
	case inherit.IsTemplate(gvk.Kind):
		object = nil
	case gvk.Group == inherit.ControlPlaneGroup:
		object = &unstructured.Unstructured{}
	case slices.Contains(x.Settings.Config.ProviderGroups, gvk.Group):
		object = &metav1.PartialObjectMetadata{}
	case gvk.Group != clusterv1.GroupVersion.Group:
		object = nil
	}
	if object == nil {
		return nil, fmt.Errorf("cannot explain a %s: choose a cluster, clusterclass, control plane, machinedeployment, machinepool, machineset, machine or "+
			"node, or the infrastructure or bootstrap of a machine in an API group that the server knows (--additional-provider-groups); "+
			"if another API group has a kind of the same name, use machines.%s", gvk.GroupKind(), clusterv1.GroupVersion.Group)
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	if err := x.Store.Get(ctx, key, object); apierrors.IsNotFound(err) {
		return nil, cli.NotFound(gvk.Kind, key)
	} else if err != nil {
		return nil, fmt.Errorf("getting %s %s: %w", gvk.Kind, key, err)
	}
	return x.Of(ctx, inherit.Ref{Kind: gvk.Kind, Object: object}, gvk), nil
}

// Choose returns all objects of a kind that a selector matches, in a namespace or in all. Nodes come from the Cluster that the user has
// named, or from the management cluster if it is a Cluster itself.
func (x *Explainer) Choose(ctx context.Context, gvk schema.GroupVersionKind, namespace string, selector labels.Selector) (all []Object, err error) {
	var reader client.Reader = x.Store
	if IsNode(gvk) {
		cluster := cmp.Or(x.Cluster, x.Settings.Config.ManagementClusterKey)
		if cluster.Name == "" {
			return nil, errors.New("specify the Cluster with --workload-cluster=<namespace>/<name>")
		}
		if reader, err = x.nodes(ctx, cluster); err != nil {
			return nil, err
		}
		namespace = ""
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := reader.List(ctx, list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("listing all objects of kind %s: %w", gvk.Kind, err)
	}
	for i := range list.Items {
		all = append(all, Object{gvk, client.ObjectKeyFromObject(&list.Items[i])})
	}
	return all, nil
}

// notes returns the notes about the whole object, unless the trace of a key says the same.
func (x *Explainer) notes(o *compare.Object) (notes []string) {
	say := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	ref := metav1.GetControllerOfNoCopy(o.Object)
	switch {
	case o.Declares() && len(o.Entries) == 0:
		say("%s declares nothing to inherit.", o.Ref)
	case o.Declares():
		return nil
	case o.Err != nil:
		say("Inheritance of %s is unknown, because some of its owners cannot be read: %s. Inherited entries are shown as set on %s.",
			o.Ref, cli.OneLine(o.Err), o.Ref)
	case o.Skipped != "" && x.Key != "":
	case o.Skipped != "":
		because := ""
		if o.Node != nil && o.Node.Would.Inherits() {
			because = " of " + o.Node.Would.Source.String() + ":"
		}
		say("Heirloom skips the object for now, because%s %s.", because, o.Skipped)
	case o.Node == nil && o.Would.Outcome == inherit.OwnerNotFound && ref != nil:
		say("%s is controlled by %s %s, which no longer exists, belongs to another Cluster or cannot own such an object: "+
			"entries from it are shown as set on %s.", o.Ref, ref.Kind, ref.Name, o.Ref)
	}
	isTaint := func(e compare.Entry) bool { return e.Of.What == taint }
	if x.Settings.Propagation == inherit.PropagationUnknown && slices.ContainsFunc(o.Entries, isTaint) {
		say("Cluster API's feature gate MachineTaintPropagation is unknown: taints are shown as if it were on.")
	}
	return append(notes, x.notesOn(o)...)
}

// notesOn returns the notes about the mode, the start-up gates, the owners and the left-out entries of an object.
func (x *Explainer) notesOn(o *compare.Object) (notes []string) {
	say := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if o.Observed() && len(o.Wrong()) > 0 {
		say("Heirloom only observes this Cluster: it reports what is missing or differs, and writes nothing (--mode, or the label %s of the Cluster or its ClusterClass).",
			inherit.ModeLabel)
	}
	if o.Node != nil {
		for _, gate := range o.Node.Plan.Gates {
			say("A start-up gate is closed: %s.", gate)
		}
	}
	if o.Sources.Err != nil {
		say("Some owners cannot be read, so their declarations are missing here: %s.", cli.OneLine(o.Sources.Err))
	}
	for _, d := range o.Sources.All {
		if d.Unread && o.Sources.Err == nil {
			say("Declarations of %s are unknown: it no longer exists, or does not name the objects below it.", d.Ref)
		}
	}
	if located := o.Sources.Located(o.Problems); located != nil {
		say("Left out: %s.", cli.OneLine(located))
	}
	if all := o.Sources.All; len(all) > 0 && x.Key == "" && !same(all[0].Ref, o.Ref) {
		metadata := all[0].Paths.Metadata
		field := cmp.Or(all[0].Whole, strings.Join(metadata[:max(0, len(metadata)-1)], "."))
		say("To change inherited entries, edit %s.", inherit.Source{Ref: all[0].Ref, Field: field})
	}
	return notes
}

// nowhere says that neither the object nor an object above it has a key.
func nowhere(o *compare.Object, key string) string {
	var owners []string
	for _, d := range o.Sources.All {
		if !d.Itself && !o.Declares() && !same(d.Ref, o.Ref) {
			owners = append(owners, d.String())
		}
	}
	if len(owners) == 0 {
		return fmt.Sprintf("Neither the object nor an owner declares %q.", key)
	}
	return fmt.Sprintf("No owner declares %q, and it is not set on the object. Owners: %s.", key, strings.Join(owners, ", "))
}

// node returns the Node with a name: of the Cluster that the user has named; of the management cluster, if it has the Node and is a Cluster
// itself; or of the Cluster with a Machine that names the Node.
func (x *Explainer) node(ctx context.Context, name string) (*compare.Object, error) {
	if x.Cluster.Name != "" {
		return x.nodeOf(ctx, x.Cluster, name)
	}
	if management := x.Settings.Config.ManagementClusterKey; management.Name != "" {
		if o, err := x.nodeOf(ctx, management, name); !apierrors.IsNotFound(err) {
			return o, err
		}
	}
	clusters, err := x.naming(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case len(clusters) > 1:
		return nil, fmt.Errorf("several Clusters have a Machine for Node %s: %s (use --workload-cluster=<namespace>/<name>, or -n)", name, strings.Join(clusters, ", "))
	case len(clusters) == 0:
		return nil, fmt.Errorf("%w: no Machine names it in status.nodeRef (use --workload-cluster=<namespace>/<name> for a Node without a Machine, "+
			"and --management-cluster=<namespace>/<name> for a Node of a management cluster that manages itself)",
			cli.NotFound("Node", types.NamespacedName{Name: name}))
	}
	namespace, cluster, _ := strings.Cut(clusters[0], "/")
	return x.nodeOf(ctx, types.NamespacedName{Namespace: namespace, Name: cluster}, name)
}

// naming returns the Clusters with a Machine whose status.nodeRef names the Node or, if there is none, with a MachinePool whose
// status.nodeRefs do.
func (x *Explainer) naming(ctx context.Context, name string) (clusters []string, err error) {
	machines, pools := &clusterv1.MachineList{}, &clusterv1.MachinePoolList{}
	err = x.Store.List(ctx, machines, client.InNamespace(x.Namespace))
	for _, m := range machines.Items {
		if m.Status.NodeRef.Name == name {
			clusters = append(clusters, m.Namespace+"/"+m.Spec.ClusterName)
		}
	}
	if err == nil && len(clusters) == 0 {
		err = x.Store.List(ctx, pools, client.InNamespace(x.Namespace))
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the Machine or MachinePool of Node %s: %w", name, err)
	}
	for _, mp := range pools.Items {
		if slices.ContainsFunc(mp.Status.NodeRefs, func(ref corev1.ObjectReference) bool { return ref.Name == name }) {
			clusters = append(clusters, mp.Namespace+"/"+mp.Spec.ClusterName)
		}
	}
	slices.Sort(clusters)
	return slices.Compact(clusters), nil
}

// nodeOf returns a Node of a known Cluster. For a Node without a Machine or MachinePool, it returns an error, unless the user asks about a
// key.
func (x *Explainer) nodeOf(ctx context.Context, cluster types.NamespacedName, name string) (*compare.Object, error) {
	nodes, err := x.nodes(ctx, cluster)
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{}
	if err := nodes.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		return nil, asked(cluster, err)
	}
	o := x.Node(ctx, cluster, node)
	if o.Err == nil && o.Node.Would.Outcome == inherit.NoOwner && x.Key == "" {
		return nil, fmt.Errorf("no Machine or MachinePool, or more than one, of Cluster %s matches Node %s by status.nodeRef, spec.providerID or address: "+
			"compare them (kubectl get machines -n %s -o wide) with the Node, whose spec.providerID is %q",
			cluster, node.Name, cluster.Namespace, node.Spec.ProviderID)
	}
	return o, o.Err
}

// nodes returns a reader for the Nodes of a Cluster. It connects once.
func (x *Explainer) nodes(ctx context.Context, cluster types.NamespacedName) (client.Reader, error) {
	if x.workloads[cluster] == nil {
		x.workloads[cluster] = sync.OnceValues(func() (client.Reader, error) {
			nodes, err := x.Nodes(ctx, cluster)
			if err != nil {
				return nil, asked(cluster, err)
			}
			if live, ok := nodes.(client.Client); ok {
				nodes = store.New(live, nil)
			}
			return nodes, nil
		})
	}
	return x.workloads[cluster]()
}

// asked names the workload cluster in an error about it.
func asked(cluster types.NamespacedName, err error) error {
	return fmt.Errorf("asking the workload cluster of Cluster %s (use --workload-kubeconfig for another kubeconfig): %w", cluster, err)
}
