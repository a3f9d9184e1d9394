// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// Question is what to work out.
type Question struct {
	// Files are what is about to be applied, and Apply says how.
	Files []*unstructured.Unstructured
	Apply Apply
	// Clusters are looked at in addition to those that the files are about.
	Clusters []types.NamespacedName
	Settings settings.Settings
	// Nodes returns a client of a Cluster's workload cluster.
	Nodes snapshot.Nodes
}

// evaluation is the work on one question.
type evaluation struct {
	Question
	from   *snapshot.Snapshot
	policy inherit.Policy
	// applied are the objects of the files that the walk has not met yet; all are those that may change, in order.
	applied map[id]*Object
	all     []*Object
	// stored are the objects as they are stored, by kind and namespace.
	stored map[group]map[client.ObjectKey]*unstructured.Unstructured
	// sets names, by the UID of a Machine or a MachinePool, the set of which it is.
	sets    map[types.UID]string
	taints  []*Consequence
	evicted turns
	notes   []string
	// problems are what cannot be inherited, in the order in which they were found, and by which objects.
	problems []string
	without  map[string][]string
}

// group is all objects of a kind in a namespace.
type group struct {
	schema.GroupVersionKind
	namespace string
}

// Ask works out what would be written.
func Ask(ctx context.Context, from *snapshot.Snapshot, question Question) (*Result, error) {
	e := &evaluation{
		Question: question, from: from, policy: question.Settings.Policy(),
		applied: map[id]*Object{}, stored: map[group]map[client.ObjectKey]*unstructured.Unstructured{}, sets: map[types.UID]string{},
		without: map[string][]string{},
	}
	clusters, err := e.apply(ctx)
	if err != nil {
		return nil, err
	}
	for _, cluster := range clusters {
		if err := e.cluster(ctx, cluster); err != nil {
			return nil, fmt.Errorf("evaluating Cluster %s: %w", cluster, err)
		}
	}
	return e.result()
}

// apply puts the files into the snapshot as the API server would store them, and returns the Clusters to look at.
func (e *evaluation) apply(ctx context.Context) ([]types.NamespacedName, error) {
	files, err := e.ranked()
	if err != nil {
		return nil, err
	}
	clusters := e.Clusters
	for _, file := range files {
		o, err := e.Apply.applied(ctx, e.from.Live(), file)
		if err != nil {
			return nil, err
		}
		e.from.Put(o.Merged)
		e.applied[idOf(o.Merged)] = o
		e.all = append(e.all, o)
	}
	for _, o := range e.all {
		of, err := e.clustersOf(ctx, o.Merged)
		if err != nil {
			return nil, err
		}
		clusters = append(clusters, of...)
		if len(of) == 1 {
			o.Cluster = of[0].String()
		}
	}
	// Those of a Cluster come when the walk meets them.
	e.all = slices.DeleteFunc(e.all, func(o *Object) bool { return !top(o) })
	for _, o := range e.all {
		delete(e.applied, idOf(o.Merged))
	}
	return e.watched(sorted(slices.Clone(clusters))), nil
}

// top reports whether an object is above all that inherits.
func top(o *Object) bool {
	return o.Merged.GetKind() == "ClusterClass" || o.Merged.GetKind() == "Cluster"
}

// ranked returns the files from the top of the owner chain to its end, without those that are not in it.
func (e *evaluation) ranked() ([]*unstructured.Unstructured, error) {
	var files []*unstructured.Unstructured
	var others []string
	place := func(file *unstructured.Unstructured) int {
		at, _ := rank(file.GroupVersionKind(), e.Settings.Config.ProviderGroups)
		return at
	}
	seen := map[id]bool{}
	for _, file := range e.Files {
		if seen[idOf(file)] {
			return nil, fmt.Errorf("%s is in the files twice: leave one of them out", nameOf(file))
		}
		seen[idOf(file)] = true
		if gv := file.GroupVersionKind().GroupVersion(); gv.Group == clusterv1.GroupVersion.Group && gv != clusterv1.GroupVersion {
			return nil, fmt.Errorf("%s is in %s: convert it to %s, in which Heirloom reads it", nameOf(file), gv, clusterv1.GroupVersion)
		}
		if _, ok := rank(file.GroupVersionKind(), e.Settings.Config.ProviderGroups); ok {
			files = append(files, file)
		} else {
			others = append(others, nameOf(file))
		}
	}
	if len(others) > 0 {
		e.note("Not shown, because nothing inherits from them: %s (kubectl diff shows them)", strings.Join(others, ", "))
	}
	slices.SortStableFunc(files, func(a, b *unstructured.Unstructured) int { return cmp.Compare(place(a), place(b)) })
	return files, nil
}

// watched returns the Clusters that the server looks after.
func (e *evaluation) watched(clusters []types.NamespacedName) []types.NamespacedName {
	return slices.DeleteFunc(clusters, func(cluster types.NamespacedName) bool {
		why, other := e.Settings.LeavesOut(cluster.Namespace)
		if other {
			e.note("Cluster %s is not looked at, because %s", cluster, why)
		}
		return other
	})
}

// cluster evaluates everything of a Cluster from the top. The tree tells which objects there are.
func (e *evaluation) cluster(ctx context.Context, key types.NamespacedName) error {
	tree, err := e.from.Walk(ctx, key, e.Settings, e.policy, nil)
	if apierrors.IsNotFound(err) && !slices.Contains(e.Clusters, key) {
		e.note("Cluster %s does not exist, so that nothing below the files is known", key)
		return nil
	}
	if err != nil {
		return err
	}
	chain := e.from.ChainOf(key)
	for _, child := range tree.Children {
		if err := e.below(ctx, chain, key, child, ""); err != nil {
			return err
		}
	}
	return e.nodes(ctx, chain, key)
}

// below evaluates an object and then those below it.
func (e *evaluation) below(ctx context.Context, chain *owners.Chain, cluster types.NamespacedName, m *snapshot.Member, set string) error {
	if err := e.member(ctx, chain, cluster, m, set); err != nil {
		return err
	}
	switch m.Object.(type) {
	case *clusterv1.Machine:
		e.sets[m.Object.GetUID()] = set
	case *metav1.PartialObjectMetadata:
	default:
		set = m.String()
		e.sets[m.Object.GetUID()] = set
	}
	for _, child := range m.Children {
		if err := e.below(ctx, chain, cluster, child, set); err != nil {
			return err
		}
	}
	return nil
}

// member evaluates an object by the row of its kind.
func (e *evaluation) member(ctx context.Context, chain *owners.Chain, cluster types.NamespacedName, m *snapshot.Member, set string) error {
	if m.Err != nil {
		e.note("%s is not shown, because it or its owners cannot be read: %s", m, cli.OneLine(m.Err))
		return nil
	}
	w := write{evaluation: e, chain: chain, cluster: cluster, gvk: m.GVK, set: set}
	if applied, ok := e.applied[id{m.GVK.GroupKind(), client.ObjectKeyFromObject(m.Object)}]; ok {
		w.gvk, w.into = applied.Merged.GroupVersionKind(), applied // the version of the file
		delete(e.applied, idOf(applied.Merged))
		e.all = append(e.all, applied)
	}
	switch o := m.Object.(type) {
	case *inherit.ControlPlane:
		return carry(ctx, w, owners.ControlPlanes, o)
	case *clusterv1.MachineDeployment:
		return carry(ctx, w, owners.MachineDeployments, o)
	case *clusterv1.MachinePool:
		return carry(ctx, w, owners.MachinePools, o)
	case *clusterv1.MachineSet:
		return carry(ctx, w, owners.MachineSets, o)
	case *clusterv1.Machine:
		return carry(ctx, w, owners.Machines, o)
	case *metav1.PartialObjectMetadata:
		if _, other := e.Settings.LeavesOutGroup(m.GVK.Group); other {
			return nil
		}
		return carry(ctx, w, owners.ExternalObjects, o)
	}
	return nil
}
