// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Patch is a merge patch of an object (kubectl patch --type=merge). Such a patch replaces whole lists, so a list has all its items.
type Patch struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Namespace  string         `json:"namespace"`
	Name       string         `json:"name"`
	Patch      map[string]any `json:"patch"`
}

// Object returns an empty object with the kind and the name.
func (p *Patch) Object() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(p.APIVersion)
	u.SetKind(p.Kind)
	u.SetNamespace(p.Namespace)
	u.SetName(p.Name)
	return u
}

// target is the place that declares for a pool: a section of the Cluster's topology, or the Machine template of the pool itself.
type target struct {
	inherit.Ref
	gvk     schema.GroupVersionKind
	cluster *clusterv1.Cluster
	paths   inherit.Paths
	// typed says that taints are declared in paths.Taints, and not by an annotation. repeated are the taints of the ClusterClass that the list
	// of the topology has to repeat, because it replaces the list of the class.
	typed    bool
	repeated []clusterv1.MachineTaint
	// annotated are the taints that the annotation declares already.
	annotated string
	// missing says why there is no such place.
	missing string
}

func targetOf(tree *compare.Tree, o *compare.Object, policy inherit.Policy) target {
	t := target{Ref: o.Ref, gvk: o.GVK}
	t.cluster, _ = tree.Ref.Object.(*clusterv1.Cluster)
	own, paths := o.Has.Top, o.Has.Layout.Top
	if o.Has.Template != nil {
		own, paths = *o.Has.Template, o.Has.Layout.Template
	}
	t.paths, t.annotated = paths, own.Annotations[taint.AlwaysAnnotation]
	gate := policy.ClusterAPITaints == inherit.PropagationEnabled && o.Kind != "MachinePool"
	t.typed = gate && paths.Taints != nil
	if _, owned := o.Object.GetLabels()[clusterv1.ClusterTopologyOwnedLabel]; owned {
		if len(o.Sources.All) == 0 || o.Sources.All[0].Kind != "Cluster" {
			t.missing = "The topology has no section for it."
			return t
		}
		section := o.Sources.All[0]
		t.Ref, t.gvk, t.paths = section.Ref, tree.GVK, section.Paths
		t.annotated, _ = o.Declared(inherit.Entry{What: string(compare.Annotation), Name: taint.AlwaysAnnotation})
		if section.Taints == nil && len(o.Sources.All) > 1 {
			t.repeated = o.Sources.All[1].Taints
		}
	}
	if t.paths.Metadata == nil {
		t.missing = "The kind " + o.Kind + " has no metadata for Machines."
	}
	return t
}

func (t target) source() *compare.Source {
	if t.missing != "" {
		return nil
	}
	return compare.SourceOf(inherit.Source{Ref: t.Ref, Field: strings.TrimSuffix(strings.Join(t.paths.Metadata, "."), ".metadata")})
}

// patcher changes copies of stored objects.
type patcher struct {
	stored        func(schema.GroupVersionKind, inherit.Ref) *unstructured.Unstructured
	before, after map[string]*unstructured.Unstructured
}

// declare adds the declaration of an entry.
func (p *patcher) declare(t target, e *Entry) {
	if t.missing != "" {
		e.State, e.Message = NotPropagated, t.missing
		return
	}
	after := p.of(t.gvk, t.Ref)
	annotations := slices.Concat(t.paths.Metadata, []string{"annotations"})
	switch {
	case e.Kind == compare.Label:
		put(after, slices.Concat(t.paths.Metadata, []string{"labels"}), e.Key, e.Value)
		if e.Named {
			p.name(t.cluster, e.Key)
		}
	case t.typed:
		for _, one := range t.repeated {
			add(after, t.paths.Taints, one)
		}
		add(after, t.paths.Taints, taintOf(e))
	default:
		now := cmp.Or(get(after, annotations, taint.AlwaysAnnotation), t.annotated)
		put(after, annotations, taint.AlwaysAnnotation, taint.Join(append(taint.Split(now), taint.Format(taint.ForNode(taintOf(e))))))
	}
}

// name names a label in the annotation of the Cluster, because no rule propagates it to Nodes.
func (p *patcher) name(cluster *clusterv1.Cluster, key string) {
	after, annotations := p.of(clusterv1.GroupVersion.WithKind("Cluster"), inherit.Ref{Kind: "Cluster", Object: cluster}), []string{"metadata", "annotations"}
	now := get(after, annotations, inherit.SyncLabelsAnnotation)
	if keys, _ := inherit.ParseNamedKeys(now); !slices.Contains(keys, key) {
		now = strings.TrimPrefix(now+","+key, ",")
	}
	put(after, annotations, inherit.SyncLabelsAnnotation, now)
}

// of returns the changed copy of an object.
func (p *patcher) of(gvk schema.GroupVersionKind, of inherit.Ref) *unstructured.Unstructured {
	id := gvk.Kind + "/" + of.Object.GetName()
	if p.after[id] == nil {
		p.before[id] = p.stored(gvk, of)
		p.after[id] = p.before[id].DeepCopy()
	}
	return p.after[id]
}

// patches returns the changes as merge patches.
func (p *patcher) patches() (all []Patch, err error) {
	for _, id := range slices.Sorted(maps.Keys(p.after)) {
		before, _ := json.Marshal(p.before[id]) // both came as JSON
		after, _ := json.Marshal(p.after[id])
		raw, err := jsonpatch.CreateMergePatch(before, after)
		of := p.after[id]
		one := Patch{APIVersion: of.GetAPIVersion(), Kind: of.GetKind(), Namespace: of.GetNamespace(), Name: of.GetName()}
		if err == nil {
			err = json.Unmarshal(raw, &one.Patch)
		}
		if err != nil {
			return nil, fmt.Errorf("making the patch of %s: %w", id, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// at returns the map at a path, and makes it. An element "list[name]" is the item of a list with this name.
func at(u *unstructured.Unstructured, path []string) map[string]any {
	fields := u.Object
	for _, name := range path {
		list, item, isItem := strings.Cut(strings.TrimSuffix(name, "]"), "[")
		if isItem {
			fields = itemOf(fields, list, item)
			continue
		}
		next, is := fields[name].(map[string]any)
		if !is {
			next = map[string]any{}
			fields[name] = next
		}
		fields = next
	}
	return fields
}

func itemOf(fields map[string]any, list, name string) map[string]any {
	items, _ := fields[list].([]any)
	for _, item := range items {
		if one, is := item.(map[string]any); is && one["name"] == name {
			return one
		}
	}
	one := map[string]any{"name": name}
	fields[list] = append(items, one)
	return one
}

func put(u *unstructured.Unstructured, path []string, key, value string) { at(u, path)[key] = value }

func get(u *unstructured.Unstructured, path []string, key string) string {
	text, _ := at(u, path)[key].(string) // a put follows, so the map may be made
	return text
}

// add adds a taint to a list, unless the list has it.
func add(u *unstructured.Unstructured, path []string, t clusterv1.MachineTaint) {
	last := len(path) - 1
	above := at(u, path[:last])
	item := map[string]any{"key": t.Key, "effect": string(t.Effect), "propagation": string(t.Propagation)}
	if t.Value != "" {
		item["value"] = t.Value
	}
	list, _ := above[path[last]].([]any)
	if !slices.ContainsFunc(list, func(one any) bool {
		has, is := one.(map[string]any)
		return is && has["key"] == t.Key && has["effect"] == string(t.Effect)
	}) {
		above[path[last]] = append(list, item)
	}
}
