// SPDX-License-Identifier: Apache-2.0

// Package diff computes the writes that a change would cause, object by object, down to the Nodes, and writes nothing. The API server
// computes the result of the files in a dry run. The store puts these results in front of the stored objects, and all objects below are
// compared from the top. The result of each comparison goes into the store before the objects below it are compared.
package diff

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/pace"
)

// Question is the input of a diff.
type Question struct {
	compare.World
	// Files are the objects that the user is about to apply.
	Files []File
	// Clusters are compared in addition to the Clusters of the files.
	Clusters []types.NamespacedName
}

// File is an object of the files. DryRun asks the API server for the live object, nil if it is new, and for the object that an apply would
// make of it: webhooks, defaults and validation are real.
type File struct {
	*unstructured.Unstructured
	DryRun func() (live, merged runtime.Object, err error)
}

// evaluation computes the answer to a Question.
type evaluation struct {
	Question
	*Result
	// applied holds the objects of the files, by idOf.
	applied map[string]*Object
	// changed holds the Nodes of the current Cluster that change; waiting counts the Nodes of all Clusters that wait for their turn, by their
	// limits.
	changed []*compare.Object
	waiting map[[2]pace.Limit]int
	// inherited holds the entries that objects inherit before the files are applied (inheritedBy).
	inherited map[string]bool
	// said holds the notes, each with the objects that it is about.
	said map[string][]string
}

// Ask answers a Question.
func Ask(ctx context.Context, question Question) (*Result, error) {
	e := &evaluation{
		Question: question, applied: map[string]*Object{}, waiting: map[[2]pace.Limit]int{}, inherited: map[string]bool{}, said: map[string][]string{},
	}
	e.Result = &Result{TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "Difference"}, Objects: []*Object{}}
	if err := e.apply(); err != nil {
		return nil, err
	}
	clusters := slices.Clone(e.Clusters)
	for _, o := range e.Objects {
		of, err := e.clustersOf(ctx, o)
		if err != nil {
			return nil, err
		}
		clusters = append(clusters, of...)
	}
	slices.SortFunc(clusters, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	clusters = slices.Compact(clusters)
	e.put(ctx, clusters)
	for _, cluster := range clusters {
		if err := e.cluster(ctx, cluster); err != nil {
			return nil, err
		}
	}
	e.Objects = slices.DeleteFunc(e.Objects, func(o *Object) bool { return reflect.DeepEqual(o.Before, o.After) })
	for _, text := range slices.Sorted(maps.Keys(e.said)) {
		e.Notes = append(e.Notes, strings.Replace(text, "%s", cli.Some(e.said[text], 1), 1)+".")
	}
	if len(e.waiting) > 0 {
		e.Pace = paceOf(e.waiting, e.Settings.Config.NoExecuteRate)
	}
	return e.Result, nil
}

// note adds a note about an object, whose name replaces %s. Objects share a sentence.
func (e *evaluation) note(object, text string) { e.said[text] = append(e.said[text], object) }

// put puts the files into the store, as the API server would store them.
func (e *evaluation) put(ctx context.Context, clusters []types.NamespacedName) {
	if len(e.Files) == 0 {
		return
	}
	for _, cluster := range clusters {
		e.remember(ctx, cluster)
	}
	for _, o := range e.applied {
		e.Store.Put(o.Merged)
	}
}

// apply asks the API server how it would store the files.
func (e *evaluation) apply() error {
	for _, file := range e.Files {
		gvk, name := file.GroupVersionKind(), inherit.Ref{Kind: file.GetKind(), Object: file}.String()
		id := idOf(gvk, file)
		switch {
		case e.applied[id] != nil:
			return fmt.Errorf("the files contain %s twice: remove one copy", name)
		case gvk.Group == clusterv1.GroupVersion.Group && gvk.Version != clusterv1.GroupVersion.Version:
			return fmt.Errorf("%s has API version %s: convert it to %s, which Heirloom reads", name, gvk.GroupVersion(), clusterv1.GroupVersion)
		case !e.inherits(gvk):
			e.note(name, "Nothing inherits from %s (kubectl diff shows it)")
			continue
		}
		live, result, err := file.DryRun()
		if err != nil {
			return fmt.Errorf("applying %s in a dry run: %w", name, err)
		}
		merged, _ := result.(*unstructured.Unstructured) // the same type as the file
		o := newObject(file, merged)
		o.Merged = merged
		o.Applied, o.New = true, live == nil
		if live != nil {
			o.Before = shown(live)
		}
		o.Files = o.byFile()
		e.applied[id], e.Objects = o, append(e.Objects, o)
	}
	return nil
}

// inherits reports whether a kind is in the owner chain.
func (e *evaluation) inherits(gvk schema.GroupVersionKind) bool {
	if gvk.Group == clusterv1.GroupVersion.Group {
		return slices.Contains(append([]string{"ClusterClass", "Cluster"}, inherit.Kinds...), gvk.Kind)
	}
	return !inherit.IsTemplate(gvk.Kind) && (gvk.Group == inherit.ControlPlaneGroup || slices.Contains(e.Settings.Config.ProviderGroups, gvk.Group))
}

// clustersOf returns the Clusters that an object of the files affects: all Clusters of a ClusterClass, or the object's own Cluster.
func (e *evaluation) clustersOf(ctx context.Context, o *Object) ([]types.NamespacedName, error) {
	key := types.NamespacedName{Namespace: o.Namespace}
	switch o.Kind {
	case "ClusterClass":
		return e.Store.Chain(types.NamespacedName{}).ClustersOf(ctx, o.After)
	case "Cluster":
		key.Name = o.Name
	default:
		name, _, _ := unstructured.NestedString(o.After.Object, "spec", "clusterName")
		key.Name = cmp.Or(name, o.After.GetLabels()[clusterv1.ClusterNameLabel])
	}
	if key.Name == "" {
		return nil, nil
	}
	o.Cluster = key.String()
	return []types.NamespacedName{key}, nil
}

// cluster compares all objects of a Cluster from the top.
func (e *evaluation) cluster(ctx context.Context, key types.NamespacedName) error {
	e.changed = nil
	tree, err := e.Tree(ctx, key, func(o *compare.Object) error { return e.visit(ctx, o) })
	switch {
	case apierrors.IsNotFound(err) && slices.Contains(e.Clusters, key):
		return cli.NotFound("Cluster", key)
	case apierrors.IsNotFound(err):
		e.note(key.String(), "Cluster %s does not exist, so changes below the files are unknown")
		return nil
	case err != nil:
		return err
	case errors.Is(tree.NodesErr, cli.ErrSkipped):
		e.note(key.String(), "The Nodes of Cluster %s do not change: "+cli.OneLine(tree.NodesErr))
	case tree.NodesErr != nil:
		e.Unread = true
		e.note(key.String(), "The Nodes of Cluster %s are not shown, because its API server does not answer: "+cli.OneLine(tree.NodesErr))
	}
	e.labels(ctx, key)
	return e.consequences(ctx, key)
}

// visit computes the object after the next write, and puts it into the store.
func (e *evaluation) visit(ctx context.Context, o *compare.Object) error {
	name, into := o.String(), e.applied[idOf(o.GVK, o.Object)]
	if into != nil { // an object of a file moves to the place at which the walk meets it
		e.Objects = append(slices.DeleteFunc(e.Objects, func(o *Object) bool { return o == into }), into)
	}
	switch {
	case o.Err != nil:
		external := o.Node == nil && o.Parent != nil && o.Parent.Kind == "Machine" // has no Nodes below it
		e.Unread = e.Unread || !external && !errors.Is(o.Err, compare.ErrGone)
		e.note(name, "Changes of %s are unknown: "+cli.OneLine(o.Err))
		return nil
	case o.Skipped != "":
		if len(o.Wrong()) > 0 {
			e.note(name, "Heirloom skips %s: "+string(o.Skipped))
		}
	case o.Problems != nil:
		e.note(name, "Inheritance is incomplete for %s: "+cli.OneLine(o.Sources.Located(o.Problems)))
	}
	before, after, err := e.become(ctx, o)
	if err != nil || after == nil {
		return err
	}
	if into == nil {
		into = newObject(o.Object, after)
		into.Before, into.Cluster, into.Set = shown(before), o.Cluster.String(), setOf(o)
		e.Objects = append(e.Objects, into)
	}
	into.After = shown(after)
	into.Changes = e.byClusterAPI(o)
	if o.Skipped == "" {
		into.Changes = append(o.Wrong(), into.Changes...)
	}
	return nil
}

// become returns an object before and after the next writes of Heirloom, unless Heirloom leaves the object alone, and of Cluster API; nil if
// nothing changes.
func (e *evaluation) become(ctx context.Context, o *compare.Object) (before, after runtime.Object, err error) {
	removed := e.byClusterAPI(o)
	if n := o.Node; n != nil {
		if !n.Decided.Inherits() {
			n.Next = n.State
		}
		n.Next.Labels = maps.Clone(n.Next.Labels)
		for _, label := range removed {
			delete(n.Next.Labels, label.Key)
		}
		if n.Next.Equal(n.State) {
			return nil, nil, nil
		}
		e.changed = append(e.changed, o)
		next := n.DeepCopy()
		next.Labels, next.Annotations, next.Spec.Taints = n.Next.Labels, n.Next.Annotations, n.Next.Taints
		return n.Node, next, nil
	}
	planned := o.Skipped == "" && o.Plan != nil && o.Plan.Needed()
	if !planned && len(removed) == 0 {
		return nil, nil, nil
	}
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(o.GVK)
	if err = e.Store.Get(ctx, client.ObjectKeyFromObject(o.Object), stored); err != nil {
		return nil, nil, fmt.Errorf("getting %s: %w", o.Ref, err)
	}
	written := without(stored, removed)
	if planned {
		if written, err = e.carryOut(o, written); err != nil {
			return nil, nil, fmt.Errorf("computing the write of %s: %w", o.Ref, err)
		}
	}
	e.Store.Put(written)
	return stored, written, nil
}

// carryOut carries out the plan of an object, with the operations of the webhook's answer, and returns the written object.
func (e *evaluation) carryOut(o *compare.Object, stored *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	raw, _ := json.Marshal(stored) // it came as JSON
	operations, err := o.Plan.Patch(raw, stored.GetAPIVersion(), e.Now)
	if err != nil {
		return nil, err
	}
	text, _ := json.Marshal(operations)
	patch, err := jsonpatch.DecodePatch(text)
	if err == nil {
		raw, err = patch.Apply(raw)
	}
	if err != nil {
		return nil, err
	}
	written := &unstructured.Unstructured{}
	return written, written.UnmarshalJSON(raw)
}

// setOf names the object whose Machines and Nodes are alike: the nearest object above that may have several.
func setOf(o *compare.Object) string {
	for above := o.Parent; above != nil && !above.Declares(); above = above.Parent {
		if above.Kind != "Machine" {
			return above.String()
		}
	}
	return ""
}

// idOf names an object, in any version.
func idOf(gvk schema.GroupVersionKind, object metav1.Object) string {
	return gvk.GroupKind().String() + "/" + object.GetNamespace() + "/" + object.GetName()
}
