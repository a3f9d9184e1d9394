// SPDX-License-Identifier: Apache-2.0

// Package diff works out what a change would write, object by object, down to the Nodes, and writes nothing. The API server is asked
// by a dry run what the files would become. The answers are put in front of what is stored, and everything below is compared from the
// top; what an object would become is put there before the objects below it are compared.
package diff

import (
	"cmp"
	"context"
	"encoding/json"
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

// Question is what to work out.
type Question struct {
	compare.World
	// Files are what is about to be applied.
	Files []File
	// Clusters are looked at in addition to those that the files are about.
	Clusters []types.NamespacedName
}

// File is an object of the files. DryRun asks the API server what it is, nil if it is new, and what it would become: webhooks, defaults
// and validation are real.
type File struct {
	*unstructured.Unstructured
	DryRun func() (live, merged runtime.Object, err error)
}

// evaluation is the work on one question.
type evaluation struct {
	Question
	*Result
	// applied are the objects of the files.
	applied map[string]*Object
	// changed are the Nodes of a Cluster that change; waiting are those of all Clusters that wait for their turn.
	changed []*compare.Object
	waiting map[[2]pace.Limit]int
	// said are notes, each with the objects that it is about.
	said map[string][]string
}

// Ask works out what would be written.
func Ask(ctx context.Context, question Question) (*Result, error) {
	e := &evaluation{Question: question, applied: map[string]*Object{}, waiting: map[[2]pace.Limit]int{}, said: map[string][]string{}}
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
	for _, cluster := range slices.Compact(clusters) {
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

// note says something about an object, which stands for %s. Objects share a sentence.
func (e *evaluation) note(object, text string) { e.said[text] = append(e.said[text], object) }

// apply puts the files into the store as the API server would store them.
func (e *evaluation) apply() error {
	for _, file := range e.Files {
		gvk, name := file.GroupVersionKind(), strings.Replace(inherit.Ref{Kind: file.GetKind(), Object: file}.String(), " /", " ", 1)
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
		merged, _ := result.(*unstructured.Unstructured) // as the file
		e.Store.Put(merged)
		o := newObject(file, merged)
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
		return slices.Contains([]string{"ClusterClass", "Cluster", "MachineDeployment", "MachinePool", "MachineSet", "Machine"}, gvk.Kind)
	}
	return !inherit.IsTemplate(gvk.Kind) && (gvk.Group == inherit.ControlPlaneGroup || slices.Contains(e.Settings.Config.ProviderGroups, gvk.Group))
}

// clustersOf returns the Clusters that an object of the files is about: those of a ClusterClass, or its own.
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

// cluster compares everything of a Cluster from the top.
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
	case tree.NodesErr != nil:
		e.note(key.String(), "The Nodes of Cluster %s are not shown, because its API server does not answer: "+cli.OneLine(tree.NodesErr))
	}
	return e.consequences(ctx, key)
}

// visit works out what would become of an object, and puts that into the store.
func (e *evaluation) visit(ctx context.Context, o *compare.Object) error {
	name, into := o.String(), e.applied[idOf(o.GVK, o.Object)]
	if into != nil { // files stand first; those of a Cluster, where the walk meets them
		e.Objects = append(slices.DeleteFunc(e.Objects, func(o *Object) bool { return o == into }), into)
	}
	switch {
	case o.Err != nil:
		e.note(name, "Changes of %s are unknown: "+cli.OneLine(o.Err))
		return nil
	case o.LeftAlone != "":
		if len(o.Wrong()) > 0 {
			e.note(name, "Heirloom leaves %s alone: "+string(o.LeftAlone))
		}
		return nil
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
	into.Changes = o.Wrong()
	return nil
}

// become returns what an object is and would become; nothing if Heirloom does not change it.
func (e *evaluation) become(ctx context.Context, o *compare.Object) (before, after runtime.Object, err error) {
	if n := o.Node; n != nil {
		if !n.Decided.Inherits() || n.Next.Equal(n.State) {
			return nil, nil, nil
		}
		e.changed = append(e.changed, o)
		next := n.DeepCopy()
		next.Labels, next.Annotations, next.Spec.Taints = n.Next.Labels, n.Next.Annotations, n.Next.Taints
		return n.Node, next, nil
	}
	if o.Plan == nil || !o.Plan.Needed() {
		return nil, nil, nil
	}
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(o.GVK)
	if err = e.Store.Get(ctx, client.ObjectKeyFromObject(o.Object), stored); err != nil {
		return nil, nil, fmt.Errorf("getting %s: %w", o.Ref, err)
	}
	written, err := e.carryOut(o, stored)
	if err != nil {
		return nil, nil, fmt.Errorf("computing the write of %s: %w", o.Ref, err)
	}
	e.Store.Put(written)
	return stored, written, nil
}

// carryOut returns an object as its plan leaves it, with the operations by which the webhook answers.
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

// setOf names the object whose Machines, Nodes and so on are alike: the nearest one above that may have several.
func setOf(o *compare.Object) string {
	for above := o.Parent; above != nil && !above.Declares(); above = above.Parent {
		if above.Kind != "Machine" {
			return above.String()
		}
	}
	return ""
}

// idOf names an object, in whatever version it is.
func idOf(gvk schema.GroupVersionKind, object metav1.Object) string {
	return gvk.GroupKind().String() + "/" + object.GetNamespace() + "/" + object.GetName()
}
