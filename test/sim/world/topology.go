// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	topology "sigs.k8s.io/cluster-api/core/reconcilers/topology/cluster"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

// A Cluster with a topology has a ClusterClass of its own. Cluster API's topology controller makes a MachineDeployment and the control plane.
// Operators declare for both sets in the Cluster, or, with ofClass after the name of the set, in the ClusterClass.
const ofTopology, ofClass = "-t", "-class"

// inTopology reports whether a set comes from a topology, in a Cluster that has a topology.
func inTopology(set string) bool {
	return strings.HasSuffix(set, ofTopology) || strings.HasSuffix(set, ofControlPlane)
}

func (w *World) topological(set string) bool {
	return w.options.Topologies && inTopology(strings.TrimSuffix(set, ofClass))
}

// topologyOf returns the topology of a Cluster.
func topologyOf(name string) clusterv1.Topology {
	return clusterv1.Topology{
		ClassRef: clusterv1.ClusterClassRef{Name: name + ofClass}, Version: "v1.36.0", ControlPlane: clusterv1.ControlPlaneTopology{Replicas: ptr.To[int32](1)},
		Workers: clusterv1.WorkersTopology{MachineDeployments: []clusterv1.MachineDeploymentTopology{
			{Class: "worker", Name: ofTopology[1:], Replicas: ptr.To[int32](2)},
		}},
	}
}

// createClass creates the ClusterClass of a Cluster, and its templates.
func (w *World) createClass(ctx context.Context, of string) error {
	template := func(kind string) clusterv1.ClusterClassTemplateReference {
		return clusterv1.ClusterClassTemplateReference{APIVersion: templateKinds[kind] + "/v1beta2", Kind: kind, Name: of}
	}
	class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: fleet, Name: of + ofClass}}
	class.Spec.Infrastructure.TemplateRef = template("FakeClusterTemplate")
	class.Spec.ControlPlane.TemplateRef = template("ModernControlPlaneTemplate")
	class.Spec.ControlPlane.MachineInfrastructure.TemplateRef = template("FakeMachineTemplate")
	class.Spec.ControlPlane.Naming.Template = "{{ .cluster.name }}" + ofControlPlane
	worker := clusterv1.MachineDeploymentClass{Class: "worker"}
	worker.Infrastructure.TemplateRef, worker.Bootstrap.TemplateRef = template("FakeMachineTemplate"), template("FakeConfigTemplate")
	worker.Naming.Template = "{{ .cluster.name }}-{{ .machineDeployment.topologyName }}"
	worker.Rollout.Strategy.Type = clusterv1.RollingUpdateMachineDeploymentStrategyType
	worker.Rollout.Strategy.RollingUpdate.MaxSurge, worker.Rollout.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(1)), ptr.To(intstr.FromInt32(0))
	class.Spec.Workers.MachineDeployments = []clusterv1.MachineDeploymentClass{worker}
	objects := []client.Object{class}
	for _, kind := range []string{"FakeClusterTemplate", "ModernControlPlaneTemplate", "FakeConfigTemplate"} { // the FakeMachineTemplate exists
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{}}}}}
		object.SetAPIVersion(templateKinds[kind] + "/v1beta2")
		object.SetKind(kind)
		object.SetNamespace(fleet)
		object.SetName(of)
		objects = append(objects, object)
	}
	for _, object := range objects {
		if err := w.management.admin.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T of the ClusterClass of %s: %w", object, of, err)
		}
	}
	return nil
}

// templateKinds has the API groups of the kinds of templates.
var templateKinds = map[string]string{
	"FakeClusterTemplate": "infrastructure.cluster.x-k8s.io", "FakeMachineTemplate": "infrastructure.cluster.x-k8s.io",
	"ModernControlPlaneTemplate": "controlplane.cluster.x-k8s.io", "FakeConfigTemplate": "bootstrap.cluster.x-k8s.io",
}

// topologyCRDs returns the CRDs of the kinds that only topologies need, without schemas.
func topologyCRDs() []*apiextensionsv1.CustomResourceDefinition {
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, kind := range []string{"FakeClusterTemplate", "FakeCluster", "ModernControlPlaneTemplate", "FakeConfigTemplate", "FakeConfig"} {
		group, anything := templateKinds[strings.TrimSuffix(kind, "Template")+"Template"], apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		crd.Labels = map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"}
		crd.Spec.Group, crd.Spec.Scope = group, apiextensionsv1.NamespaceScoped
		crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{
			Kind: kind, ListKind: kind + "List", Plural: strings.ToLower(kind) + "s", Singular: strings.ToLower(kind),
		}
		crd.Name = crd.Spec.Names.Plural + "." + group
		crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1beta2", Served: true, Storage: true, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": anything, "status": anything},
			}},
		}}
		crds = append(crds, crd)
	}
	return crds
}

// setUpTopologies adds Cluster API's controller of topologies, if there are any.
func (w *World) setUpTopologies(ctx context.Context, mgr ctrl.Manager, clusters clustercache.ClusterCache, o controller.Options) error {
	if !w.options.Topologies {
		return nil
	}
	return (&topology.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: clusters}).SetupWithManager(ctx, mgr, o)
}

// provideTopologies plays Cluster API's controller of ClusterClasses, the status of control planes, and a bootstrap provider, until ctx is
// done.
func (w *World) provideTopologies(ctx context.Context) error {
	by, err := w.management.as(providerUser)
	if err != nil {
		return err
	}
	for ; ctx.Err() == nil; sleep(ctx, time.Second) {
		for _, class := range w.management.objects("ClusterClass") {
			if observed, _, _ := unstructured.NestedInt64(class.Object, "status", "observedGeneration"); observed != class.GetGeneration() {
				ready := metav1.Condition{Type: clusterv1.ClusterClassVariablesReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.Now()}
				w.reports(ctx, by, class, map[string]any{"observedGeneration": class.GetGeneration(), "conditions": []metav1.Condition{ready}})
			}
		}
		for _, cp := range w.management.objects("ModernControlPlane") {
			if version, _, _ := unstructured.NestedString(cp.Object, "status", "version"); version == "" {
				w.reports(ctx, by, cp, map[string]any{"version": "v1.36.0", "initialization": map[string]any{"controlPlaneInitialized": true}})
			}
		}
		for _, bootstrap := range w.management.objects("FakeConfig") {
			if name, _, _ := unstructured.NestedString(bootstrap.Object, "status", "dataSecretName"); name == "" {
				w.reports(ctx, by, bootstrap, map[string]any{"dataSecretName": "bootstrap-data", "initialization": map[string]any{"dataSecretCreated": true}})
			}
		}
	}
	return nil
}

// reports writes the status of an object. A failed write is tried again in the next second.
func (w *World) reports(ctx context.Context, by client.Client, object *unstructured.Unstructured, status map[string]any) {
	patch, err := json.Marshal(map[string]any{"status": status})
	w.history.must(err)
	_ = by.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
}

// section returns the declarations of a Cluster or ClusterClass for a set as if they were a Machine, or nil if it has none for the set.
func section(of *unstructured.Unstructured, set string) *unstructured.Unstructured {
	found := sectionOf(of, set)
	if found == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: map[string]any{"kind": "Machine", "metadata": found["metadata"], "spec": map[string]any{"taints": found["taints"]}}}
}

func sectionOf(of *unstructured.Unstructured, set string) map[string]any {
	path := []string{"spec"}
	if of.GetKind() == "Cluster" {
		path = []string{"spec", "topology"}
	}
	if kindOf(set) == "ModernControlPlane" {
		found, _, _ := unstructured.NestedMap(of.Object, append(path, "controlPlane")...)
		return found
	}
	list, _, _ := unstructured.NestedSlice(of.Object, append(path, "workers", "machineDeployments")...)
	if len(list) == 0 {
		return nil
	}
	found, _ := list[0].(map[string]any)
	return found
}

// merged merges the declarations of a ClusterClass and a Cluster. The Cluster's entries and its list of taints win. Both may be nil.
func merged(class, cluster *unstructured.Unstructured) *unstructured.Unstructured {
	result := &unstructured.Unstructured{Object: map[string]any{"kind": "Machine"}}
	labels, annotations := map[string]string{}, map[string]string{}
	for _, of := range []*unstructured.Unstructured{class, cluster} {
		if of == nil {
			continue
		}
		maps.Copy(labels, of.GetLabels())
		maps.Copy(annotations, of.GetAnnotations())
		if taints, _, _ := unstructured.NestedSlice(of.Object, "spec", "taints"); len(taints) > 0 {
			result.Object["spec"] = map[string]any{"taints": taints}
		}
	}
	result.SetLabels(labels)
	result.SetAnnotations(annotations)
	return result
}

// topologyObject returns the Cluster or the ClusterClass in which operators declare, or nil if it is lost.
func (w *World) topologyObject(who string) *unstructured.Unstructured {
	kind, name := "Cluster", clusterOf(who)
	if strings.HasSuffix(who, ofClass) {
		kind, name = "ClusterClass", name+ofClass
	}
	for _, object := range w.management.objects(kind) {
		if object.GetName() == name {
			return object
		}
	}
	return nil
}

// templates returns the template in which operators declare for a set, or nothing if it is not there.
func (w *World) templates(who string) []*unstructured.Unstructured {
	if w.topological(who) {
		if object := w.topologyObject(who); object != nil {
			return []*unstructured.Unstructured{section(object, strings.TrimSuffix(who, ofClass))}
		}
		return nil
	}
	for _, object := range w.setObjects() {
		if object.GetName() == who {
			return []*unstructured.Unstructured{templateOf(object)}
		}
	}
	return nil
}

// templateFor returns what is declared for a set in all places.
func (w *World) templateFor(object *unstructured.Unstructured) *unstructured.Unstructured {
	set := object.GetName()
	if !w.topological(set) {
		return templateOf(object)
	}
	var class, cluster *unstructured.Unstructured
	for _, template := range w.templates(set + ofClass) {
		class = template
	}
	for _, template := range w.templates(set) {
		cluster = template
	}
	return merged(class, cluster)
}

// declarers returns the names under which operators declare.
func (w *World) declarers() []string {
	var all []string
	for _, of := range w.clusters {
		for _, set := range setsOf(of.key.Name, w.options) {
			if all = append(all, set); w.topological(set) {
				all = append(all, set+ofClass)
			}
		}
	}
	return all
}

// declaresInTopology sets or drops an entry in a Cluster or in a ClusterClass.
func (w *World) declaresInTopology(ctx context.Context, who, entry string, value *string) {
	object, set := w.topologyObject(who), strings.TrimSuffix(who, ofClass)
	if object == nil {
		return
	}
	place, key, _ := strings.Cut(entry, "/")
	change := map[string]any{"metadata": map[string]any{place: map[string]any{key: value}}}
	if entry == inTaints {
		change = w.typedTaints(value)
	}
	if kindOf(set) == "ModernControlPlane" {
		change = map[string]any{"controlPlane": change}
	} else {
		// A merge patch replaces the whole list.
		before, err := json.Marshal(sectionOf(object, set))
		w.history.must(err)
		patch, err := json.Marshal(change)
		w.history.must(err)
		after, err := jsonpatch.MergePatch(before, patch)
		w.history.must(err)
		change = map[string]any{"workers": map[string]any{"machineDeployments": []json.RawMessage{after}}}
	}
	if object.GetKind() == "Cluster" {
		change = map[string]any{"topology": change}
	}
	w.patch(ctx, object, map[string]any{"spec": change})
}

// askedBy is the name under which history.asked has the Always taints of a topology for a set.
func askedBy(set string) string { return "topology of " + set }

// declaresTopology remembers what a Cluster or a ClusterClass declares.
func (h *history) declaresTopology(w apiserver.Write) {
	cluster := strings.TrimSuffix(w.After.GetName(), ofClass)
	for _, set := range []string{cluster + ofTopology, cluster + ofControlPlane} {
		template := section(w.After, set)
		if template == nil {
			continue
		}
		if h.topologies[set] == nil {
			h.topologies[set] = map[string]*unstructured.Unstructured{}
		}
		h.topologies[set][w.GVR.Resource] = template
		h.asks(askedBy(set), merged(h.topologies[set]["clusterclasses"], h.topologies[set]["clusters"]))
		h.drops(w, set, template)
	}
}

// declaringAlways returns the names of all owners that must declare an Always taint for a Node before it is certain that the Node keeps it.
func (h *history) declaringAlways(node string) []string {
	owners, set := h.ownersOf(node), h.members[node]
	if h.topologies[set] != nil {
		owners = append(owners, askedBy(set))
	}
	if poolOf(node) == "" {
		return owners
	}
	return append(owners, set)
}
