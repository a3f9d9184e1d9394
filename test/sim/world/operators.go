// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// The keys and values that operators declare, each in its place. Foreign writers use their own keys.
var (
	labels      = []string{"node.cluster.x-k8s.io/tier", "node.cluster.x-k8s.io/rack", "node-role.kubernetes.io/gpu", "example.com/team"}
	annotations = []string{"node.cluster.x-k8s.io/note", "example.com/contact"}
	always      = []string{"dedicated=ml:NoSchedule", "gpu=true:NoExecute", "dedicated=db:NoSchedule"}
	typed       = []string{"typed=yes:NoSchedule", "typed=no:NoSchedule"}
	values      = []string{"a", "b", ""}
)

// The parts of a template that an entry is in, before its key.
const inLabels, inAnnotations, inTaints = "labels/", "annotations/", "taints/"

// drawEntry draws an entry for the template of a set.
func drawEntry(d draws) Action {
	a := Action{Who: d.set()}
	places := []string{inLabels, inLabels, inAnnotations, taint.AlwaysAnnotation, taint.AlwaysAnnotation}
	if d.TypedTaints == propagatesTaints && kindOf(a.Who) != "MachinePool" {
		places = append(places, inTaints)
	}
	if d.Topologies && inTopology(a.Who) && d.below(2) == 1 {
		a.Who += ofClass
	}
	if d.StartupTaints {
		places = append(places, taint.InitializeAnnotation, taint.UntilAnnotation)
	}
	switch place := d.oneOf(places...); place {
	case inLabels:
		a.Key, a.Value = place+d.oneOf(labels...), d.oneOf(values...)
	case inAnnotations:
		a.Key, a.Value = place+d.oneOf(annotations...), d.oneOf(values...)
	case inTaints:
		a.Key, a.Value = place, d.oneOf(typed...)
		if d.StartupTaints && d.below(2) == 1 {
			a.Value = d.oneOf(typedInitial...) + onInitialization
		}
	case taint.InitializeAnnotation:
		a.Key, a.Value = inAnnotations+place, d.oneOf(initial...)
	case taint.UntilAnnotation:
		a.Key, a.Value = inAnnotations+place, d.oneOf(until...)
	default:
		a.Key, a.Value = inAnnotations+place, d.oneOf(always...)
	}
	return a
}

// declare sets an entry in the template of a set.
func declare(ctx context.Context, w *World, a Action) { w.declares(ctx, a.Who, a.Key, &a.Value) }

// toggle drops an entry from the template of a set, or sets it if it is not there.
func toggle(ctx context.Context, w *World, a Action) {
	value := &a.Value
	if w.declared(a.Who)[a.Key] != "" {
		value = nil
	}
	w.declares(ctx, a.Who, a.Key, value)
}

// declareBriefly toggles an entry twice while Cluster API is away: Cluster API sees an entry that is dropped meanwhile only later.
func declareBriefly(ctx context.Context, w *World, a Action) {
	kinds()["kill"].do(ctx, w, Action{Who: clusterAPI, Lasts: a.Lasts})
	toggle(ctx, w, a)
	w.later(ctx, a.Lasts.Duration, func() { toggle(ctx, w, a) })
}

// declares sets an entry in the template of a set, or drops it.
func (w *World) declares(ctx context.Context, set, entry string, value *string) {
	if w.topological(set) {
		w.declaresInTopology(ctx, set, entry, value)
		return
	}
	place, key, _ := strings.Cut(entry, "/")
	template := map[string]any{"metadata": map[string]any{place: map[string]any{key: value}}}
	if entry == inTaints {
		template = map[string]any{"spec": w.typedTaints(value)}
	}
	w.patchSet(ctx, set, map[string]any{"spec": map[string]any{templateField(kindOf(set)): template}})
}

// typedTaints returns a list of a single typed taint, or the removal of the list.
func (w *World) typedTaints(value *string) map[string]any {
	if value == nil {
		return map[string]any{"taints": nil}
	}
	text, initializes := strings.CutSuffix(*value, onInitialization)
	propagation := clusterv1.MachineTaintPropagationAlways
	if initializes {
		propagation = clusterv1.MachineTaintPropagationOnInitialization
	}
	list, err := taint.ParseList(text)
	w.history.must(err)
	return map[string]any{"taints": []map[string]any{{"key": list[0].Key, "value": list[0].Value, "effect": list[0].Effect, "propagation": propagation}}}
}

// declared returns the entries that the template of a set declares, each with a text that is not empty.
func (w *World) declared(set string) map[string]string {
	found := map[string]string{}
	for _, template := range w.templates(set) {
		for key, value := range template.GetLabels() {
			found[inLabels+key] = "=" + value
		}
		for key, value := range template.GetAnnotations() {
			found[inAnnotations+key] = "=" + value
		}
		if len(machineTaints(template)) > 0 {
			found[inTaints] = "set"
		}
	}
	return found
}

// dropAll drops everything that operators have declared, and what a neighbour has applied.
func (w *World) dropAll(ctx context.Context) {
	for _, set := range w.declarers() {
		for _, entry := range sets.List(sets.KeySet(w.declared(set))) {
			_, key, _ := strings.Cut(entry, "/")
			if entry == inTaints || slices.Contains(slices.Concat(labels, annotations, taint.Annotations), key) {
				w.declares(ctx, set, entry, nil)
			}
		}
	}
	w.withdraw(ctx)
}

func scale(ctx context.Context, w *World, a Action) {
	w.patchSet(ctx, a.Who, map[string]any{"spec": map[string]any{"replicas": a.N}})
}

func (w *World) patchSet(ctx context.Context, set string, patch map[string]any) {
	w.patch(ctx, named(kindOf(set), set), patch)
}

func (w *World) patch(ctx context.Context, object client.Object, patch map[string]any) {
	raw, err := json.Marshal(patch)
	w.history.must(err)
	w.history.must(client.IgnoreNotFound(w.management.admin.Patch(ctx, object, client.RawPatch(types.MergePatchType, raw))))
}

// recreate is an operator who deletes the object that declares for a set with all objects that it owns, as a garbage collector does, and
// creates another object of the same kind and name.
func recreate(ctx context.Context, w *World, a Action) {
	if w.topological(a.Who) && kindOf(a.Who) == "ModernControlPlane" {
		return // Cluster API does not create the control plane of a topology again
	}
	for _, kind := range []string{kindOf(a.Who), "MachineSet", "Machine"} {
		for _, object := range w.management.objects(kind) {
			if setOf(object) == a.Who {
				w.history.must(client.IgnoreNotFound(w.management.admin.Delete(ctx, object)))
			}
		}
	}
	if w.topological(a.Who) {
		return // the topology's controller creates it
	}
	w.actions.Go(func() {
		for ctx.Err() == nil && apierrors.IsAlreadyExists(w.management.admin.Create(ctx, newSet(a.Who))) && !w.exists(kindOf(a.Who), a.Who) {
			sleep(ctx, time.Second)
		}
	})
}

// exists reports whether there is an object of this name that is not being deleted.
func (w *World) exists(kind, name string) bool {
	return slices.ContainsFunc(w.management.objects(kind), func(o *unstructured.Unstructured) bool {
		return o.GetName() == name && o.GetDeletionTimestamp() == nil
	})
}

// loseOwner removes the object that declares for a set from the store, as after a restore of some objects only, and brings it back as it was.
func loseOwner(ctx context.Context, w *World, a Action) {
	kind, name := kindOf(a.Who), a.Who
	if w.topological(a.Who) {
		kind, name = "ClusterClass", clusterOf(a.Who)+ofClass
	}
	restore := w.management.server.Lose(resources[kind], fleet, name)
	w.later(ctx, a.Lasts.Duration, restore)
}

func deleteMachine(ctx context.Context, w *World, a Action) {
	if machines := w.management.objects("Machine"); len(machines) > 0 {
		w.history.must(client.IgnoreNotFound(w.management.admin.Delete(ctx, machines[a.N%len(machines)])))
	}
}

// deleteNode is an operator who deletes a Node, whose kubelet registers anew.
func deleteNode(ctx context.Context, w *World, a Action) {
	of := w.cluster(a.Who)
	if node, _ := w.kubelet(of, a.N); node != nil {
		w.history.must(client.IgnoreNotFound(of.admin.Delete(ctx, node)))
		w.history.must(client.IgnoreAlreadyExists(w.register(ctx, of, node.GetName())))
	}
}

// setMode sets or removes the label that says whether Heirloom writes in a Cluster.
func setMode(ctx context.Context, w *World, a Action) {
	var value any
	if a.Value != "" {
		value = a.Value
	}
	w.patchCluster(ctx, a.Who, map[string]any{"metadata": map[string]any{"labels": map[string]any{inherit.ModeLabel: value}}})
}

// pause pauses a Cluster for a while.
func pause(ctx context.Context, w *World, a Action) {
	paused := func(is bool) {
		w.patchCluster(ctx, a.Who, map[string]any{"spec": map[string]any{"paused": is}})
	}
	paused(true)
	w.later(ctx, a.Lasts.Duration, func() { paused(false) })
}

func (w *World) patchCluster(ctx context.Context, name string, patch map[string]any) {
	cluster := &clusterv1.Cluster{}
	cluster.Namespace, cluster.Name = fleet, name
	w.patch(ctx, cluster, patch)
}

// later does something after a while. The world does not end before.
func (w *World) later(ctx context.Context, after time.Duration, do func()) {
	w.actions.Go(func() {
		sleep(ctx, after)
		do()
	})
}
