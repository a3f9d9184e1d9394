// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/controlplane"
)

const (
	fleet  = "fleet"
	system = "heirloom-system"
)

// resources has the resources of the kinds that the world reads.
var resources = map[string]schema.GroupVersionResource{
	"Cluster":             clusterv1.GroupVersion.WithResource("clusters"),
	"MachineDeployment":   clusterv1.GroupVersion.WithResource("machinedeployments"),
	"ModernControlPlane":  {Group: "controlplane.cluster.x-k8s.io", Version: "v1beta2", Resource: "moderncontrolplanes"},
	"MachinePool":         clusterv1.GroupVersion.WithResource("machinepools"),
	"FakeMachinePool":     {Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Resource: "fakemachinepools"},
	"ClusterClass":        clusterv1.GroupVersion.WithResource("clusterclasses"),
	"FakeConfig":          {Group: "bootstrap.cluster.x-k8s.io", Version: "v1beta2", Resource: "fakeconfigs"},
	"MachineSet":          clusterv1.GroupVersion.WithResource("machinesets"),
	"Machine":             clusterv1.GroupVersion.WithResource("machines"),
	"FakeMachine":         {Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Resource: "fakemachines"},
	"FakeMachineTemplate": {Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Resource: "fakemachinetemplates"},
	"Pod":                 corev1.SchemeGroupVersion.WithResource("pods"),
	"Node":                corev1.SchemeGroupVersion.WithResource("nodes"),
}

// managementCRDs returns the CRDs of Cluster API and of a provider that does not exist. They are read once.
var managementCRDs = sync.OnceValues(func() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	paths, err := controlplane.CAPICRDPaths()
	if err != nil {
		return nil, err
	}
	provider, err := controlplane.ProviderCRDPath(context.Background())
	if err != nil {
		return nil, err
	}
	needed := map[schema.GroupResource]bool{}
	for _, plural := range []string{"machinedrainrules", "machinehealthchecks"} { // Cluster API's controllers read them
		needed[schema.GroupResource{Group: clusterv1.GroupVersion.Group, Resource: plural}] = true
	}
	for _, gvr := range resources {
		needed[gvr.GroupResource()] = true
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, path := range append(paths, provider) {
		all, err := readCRDs(path)
		if err != nil {
			return nil, err
		}
		for _, crd := range all {
			if needed[schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}] {
				crds = append(crds, crd)
			}
		}
	}
	return append(crds, topologyCRDs()...), nil
})

func readCRDs(path string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	files := []string{path}
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*.yaml")); err != nil {
			return nil, err
		}
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		objects, err := controlplane.DecodeObjects(string(content))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		for _, object := range objects {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			raw, err := object.MarshalJSON()
			if err == nil {
				err = yaml.Unmarshal(raw, crd)
			}
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", file, err)
			}
			crd.Spec.Conversion = nil // there is no conversion webhook, and clients use the stored version
			crds = append(crds, crd)
		}
	}
	return crds, nil
}

// configurations returns the chart's webhook configurations. They are rendered once.
var configurations = sync.OnceValues(func() ([]unstructured.Unstructured, error) {
	root, err := controlplane.RepositoryRoot(context.Background())
	if err != nil {
		return nil, err
	}
	objects, err := controlplane.RenderChart(context.Background(), filepath.Join(root, "deploy", "chart", "heirloom"), controlplane.ChartOptions{
		Namespace: system, Values: map[string]any{"workloadClusters": map[string]any{"webhookURL": workloadURL}},
	})
	if err != nil {
		return nil, err
	}
	var found []unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() == "MutatingWebhookConfiguration" {
			found = append(found, object)
		}
	}
	return found, nil
})

// build makes the API servers and the objects that exist before Heirloom is installed: a fleet of Clusters, each with a MachineDeployment.
func (w *World) build(ctx context.Context) error {
	crds, err := managementCRDs()
	if err != nil {
		return err
	}
	if w.management, err = w.serve("management", client.ObjectKey{}, crds); err != nil {
		return err
	}
	for _, namespace := range []string{fleet, system} {
		if err := w.management.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
			return fmt.Errorf("creating the namespace: %w", err)
		}
	}
	for i := range clusters {
		name := nameOf(i)
		of, err := w.serve(name, client.ObjectKey{Namespace: fleet, Name: name}, nil)
		if err != nil {
			return err
		}
		w.clusters = append(w.clusters, of)
		if w.options.Older && i == 0 {
			if err := w.load(); err != nil {
				return err
			}
			continue
		}
		if err := w.create(ctx, name); err != nil {
			return err
		}
	}
	w.declareStart(ctx)
	return nil
}

// authority returns the CA that Heirloom would publish in the webhook configurations. There is no TLS here.
var authority = sync.OnceValues(func() ([]byte, error) {
	certificate, _, err := certutil.GenerateSelfSignedCertKey("heirloom", nil, nil)
	return certificate, err
})

// install installs the webhooks of the chart, and a webhook of Cluster API if it refuses typed taints.
func (w *World) install(ctx context.Context) error {
	if w.options.TypedTaints == refusesTaints {
		if err := w.management.admin.Create(ctx, refusing()); err != nil {
			return fmt.Errorf("installing Cluster API's webhook: %w", err)
		}
	}
	objects, err := configurations()
	if err != nil {
		return err
	}
	ca, err := authority()
	if err != nil {
		return err
	}
	for i := range objects {
		object := objects[i].DeepCopy()
		hooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil {
			return err
		}
		for _, hook := range hooks {
			hook, _ := hook.(map[string]any)
			if err := unstructured.SetNestedField(hook, base64.StdEncoding.EncodeToString(ca), "clientConfig", "caBundle"); err != nil {
				return err
			}
		}
		object.Object["webhooks"] = hooks
		if err := w.management.admin.Create(ctx, object); err != nil {
			return fmt.Errorf("installing the webhooks: %w", err)
		}
	}
	return nil
}

// load loads a Cluster with a MachineDeployment as an older version of Heirloom has left them: testdata/older.json has the objects of the
// management cluster and of the workload cluster after a run of commit 04f44757, with other UIDs.
func (w *World) load() error {
	content, err := os.ReadFile("testdata/older.json")
	if err != nil {
		return err
	}
	objects := map[string][]map[string]any{}
	if err := json.Unmarshal(content, &objects); err != nil {
		return err
	}
	for name, of := range map[string]*cluster{"management": w.management, nameOf(0): w.clusters[0]} {
		for _, object := range objects[name] {
			loaded := &unstructured.Unstructured{Object: object}
			if err := of.server.Load(loaded); err != nil {
				return fmt.Errorf("loading the %s %s: %w", loaded.GetKind(), loaded.GetName(), err)
			}
			w.booted[loaded.GetUID()] = true
		}
	}
	return nil
}

// create creates a Cluster whose control plane is ready, and its sets.
func (w *World) create(ctx context.Context, name string) error {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: fleet, Name: name}}
	if w.options.Labeled {
		cluster.Labels = map[string]string{inherit.ModeLabel: string(inherit.Enforce)}
	}
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: name, Port: 6443}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: resources["FakeMachine"].Group, Kind: "FakeCluster", Name: name}
	if w.options.Topologies {
		if err := w.createClass(ctx, name); err != nil {
			return err
		}
		cluster.Spec.InfrastructureRef, cluster.Spec.Topology = clusterv1.ContractVersionedObjectReference{}, topologyOf(name)
	} else if w.options.ControlPlanes {
		cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: resources["ModernControlPlane"].Group, Kind: "ModernControlPlane", Name: name + ofControlPlane}
	}
	template := named("FakeMachineTemplate", name)
	template.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{}}}
	for _, object := range []client.Object{cluster, template} {
		if err := w.management.admin.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, name, err)
		}
	}
	cluster.Status.Initialization.InfrastructureProvisioned, cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true), ptr.To(true)
	for _, condition := range []string{clusterv1.ClusterInfrastructureReadyCondition, clusterv1.ClusterControlPlaneInitializedCondition} {
		cluster.Status.Conditions = append(cluster.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.Now()})
	}
	if err := w.management.admin.Status().Update(ctx, cluster); err != nil {
		return fmt.Errorf("making the Cluster %s ready: %w", name, err)
	}
	for i, set := range setsOf(name, w.options) {
		if w.topological(set) {
			continue
		}
		object := newSet(set)
		if md, ok := object.(*clusterv1.MachineDeployment); ok && (name != nameOf(0) || i > 0) {
			md.Spec.Replicas = ptr.To[int32](2)
		}
		if err := w.management.admin.Create(ctx, object); err != nil {
			return fmt.Errorf("creating the %s %s: %w", kindOf(set), set, err)
		}
	}
	return nil
}

// deployment returns a short MachineDeployment with the defaults of Cluster API's webhook.
func deployment(set string) *clusterv1.MachineDeployment {
	cluster := clusterOf(set)
	selector := map[string]string{clusterv1.ClusterNameLabel: cluster, clusterv1.MachineDeploymentNameLabel: set}
	md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleet, Name: set, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}}}
	md.Spec = clusterv1.MachineDeploymentSpec{ClusterName: cluster, Replicas: ptr.To[int32](machines), Selector: metav1.LabelSelector{MatchLabels: selector}}
	md.Spec.Rollout.Strategy.Type = clusterv1.RollingUpdateMachineDeploymentStrategyType
	md.Spec.Rollout.Strategy.RollingUpdate.MaxSurge, md.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(1)), ptr.To(intstr.FromInt32(0))
	md.Spec.Template.Labels = maps.Clone(selector)
	md.Spec.Template.Spec = clusterv1.MachineSpec{
		ClusterName: cluster, Version: "v1.36.0", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("bootstrap-data")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: resources["FakeMachine"].Group, Kind: "FakeMachineTemplate", Name: cluster},
	}
	return md
}

// refusal is the name of the webhook that refuses typed taints.
const refusal = "validation.machine.cluster.x-k8s.io"

// refusing plays the part of Cluster API's webhooks that refuses typed taints while the feature gate MachineTaintPropagation is off.
func refusing() *admissionregistrationv1.MutatingWebhookConfiguration {
	none, fail, all := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail, admissionregistrationv1.AllScopes
	rule := admissionregistrationv1.RuleWithOperations{Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE"}}
	rule.Rule = admissionregistrationv1.Rule{
		APIGroups: []string{clusterv1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"machines", "machinesets", "machinedeployments"}, Scope: &all,
	}
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "zz-cluster-api"}, // validation comes last
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: refusal, AdmissionReviewVersions: []string{"v1"}, SideEffects: &none, FailurePolicy: &fail, Rules: []admissionregistrationv1.RuleWithOperations{rule},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://cluster-api.example.com/")},
		}},
	}
}

// refuses answers for the webhook refusal.
func (w *World) refuses(body []byte) ([]byte, error) {
	review, object := &admissionv1.AdmissionReview{}, &unstructured.Unstructured{}
	if err := errors.Join(json.Unmarshal(body, review), object.UnmarshalJSON(review.Request.Object.Raw)); err != nil {
		return nil, err
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	for _, path := range [][]string{{"spec", "taints"}, {"spec", "template", "spec", "taints"}} {
		if taints, _, _ := unstructured.NestedSlice(object.Object, path...); len(taints) > 0 {
			review.Response.Allowed = false
			review.Response.Result = &metav1.Status{Code: http.StatusForbidden, Message: strings.Join(path, ".") +
				": Forbidden: taints are not allowed to be set when the feature gate MachineTaintPropagation is disabled"}
		}
	}
	review.Request = nil
	return json.Marshal(review)
}
