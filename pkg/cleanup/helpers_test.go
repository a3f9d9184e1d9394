// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clientgotesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/config"
)

const (
	core         = "cluster.x-k8s.io/v1beta2"
	controlPlane = "controlplane.cluster.x-k8s.io/v1beta2"
	infra        = "infrastructure.cluster.x-k8s.io/v1beta1"
	bootstrap    = "bootstrap.cluster.x-k8s.io/v1beta2"
)

// served holds the kinds of the management cluster, by apiVersion.
var served = map[string][]string{
	"v1": {"Node"}, core: {"Cluster", "MachineDeployment", "MachinePool", "MachineSet", "Machine", "MachineHealthCheck"},
	admissionregistrationv1.SchemeGroupVersion.String(): {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"},
	controlPlane: {"ControlPlane", "ControlPlaneTemplate"}, infra: {"InfraMachine", "InfraMachineTemplate"}, bootstrap: {"Bootstrap"},
}

// apiServer is the API server of a cluster. It records writes as "<verb> <kind> <name>".
type apiServer struct {
	client.Client
	// others is the client of other users. Its requests are not recorded and do not fail.
	others client.Client
	mu     sync.Mutex
	writes []string
	// By "<verb> <kind>": before runs right before the next request, after changes each answer, and fail is the error of requests.
	before map[string]func()
	after  map[string]func(client.Object)
	fail   map[string]error
}

// holds returns an API server with these objects. It serves only the given kinds.
func holds(kinds map[string][]string, objects ...client.Object) *apiServer {
	s := &apiServer{before: map[string]func(){}, after: map[string]func(client.Object){}, fail: map[string]error{}}
	var versions []schema.GroupVersion
	for version := range kinds {
		versions = append(versions, schema.FromAPIVersionAndKind(version, "").GroupVersion())
	}
	scheme, mapper := runtime.NewScheme(), meta.NewDefaultRESTMapper(versions)
	utilruntime.Must(errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme)))
	for version, names := range served {
		for _, kind := range names {
			gvk, scope := schema.FromAPIVersionAndKind(version, kind), meta.RESTScopeNamespace
			if gvk.Group == admissionregistrationv1.GroupName {
				scope = meta.RESTScopeRoot
			}
			if slices.Contains(kinds[version], kind) {
				mapper.Add(gvk, scope)
			}
			if !scheme.Recognizes(gvk) { // the fake client would register it by itself, but not safely for concurrent use
				scheme.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
				scheme.AddKnownTypeWithName(gvk.GroupVersion().WithKind(kind+"List"), &unstructured.UnstructuredList{})
			}
		}
	}
	all := fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithRESTMapper(mapper).WithObjects(objects...).Build()
	s.others = all
	s.Client = interceptor.NewClient(all, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			return s.request(ctx, "get", into, func() error { return c.Get(ctx, key, into, options...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return s.request(ctx, "list", list, func() error { return c.List(ctx, list, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return s.request(ctx, "patch", object, func() error { return c.Patch(ctx, object, patch, options...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return s.request(ctx, "create", object, func() error { return c.Create(ctx, object, options...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, object client.Object, options ...client.SubResourceUpdateOption) error {
			return s.request(ctx, name, object, func() error { return c.SubResource(name).Update(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return s.request(ctx, "delete", object, func() error { return c.Delete(ctx, object, options...) })
		},
	})
	return s
}

// request sends a request, unless it must fail or its context is done, as with an API server.
func (s *apiServer) request(ctx context.Context, verb string, what runtime.Object, do func() error) error {
	event := verb + " " + s.kindOf(what)
	s.mu.Lock()
	before := s.before[event]
	delete(s.before, event)
	s.mu.Unlock()
	if before != nil {
		before()
	}
	s.mu.Lock()
	refused := s.fail[event]
	s.mu.Unlock()
	if err := cmp.Or(ctx.Err(), refused); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	object, ok := what.(client.Object)
	if !ok || verb == "get" {
		return nil
	}
	if after := s.after[event]; after != nil {
		after(object)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, event+" "+object.GetName())
	return nil
}

// written returns all writes so far.
func (s *apiServer) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

func (s *apiServer) kindOf(what runtime.Object) string {
	gvk, _ := s.GroupVersionKindFor(what)
	return strings.TrimSuffix(gvk.Kind, "List")
}

// stored returns an object as YAML, without its managed fields, its resourceVersion, its name and its namespace, and the names of its field
// managers.
func (s *apiServer) stored(t *testing.T, apiVersion, kind, name string) (text string, managers []string) {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	key := types.NamespacedName{Namespace: "ns", Name: name}
	if kind == "Node" {
		key.Namespace = ""
	}
	NewWithT(t).Expect(s.Get(t.Context(), key, object)).To(Succeed())
	for _, entry := range object.GetManagedFields() {
		managers = append(managers, entry.Manager)
	}
	for _, field := range []string{"managedFields", "resourceVersion", "namespace", "name", "uid", "creationTimestamp", "ownerReferences"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	for _, field := range []string{"apiVersion", "kind", "status"} {
		unstructured.RemoveNestedField(object.Object, field)
	}
	raw, err := yaml.Marshal(object.Object)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(raw), managers
}

// object returns an object in namespace ns from YAML. Its UID is its name.
func object(t *testing.T, apiVersion, kind, name, content string, fields ...metav1.ManagedFieldsEntry) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	NewWithT(t).Expect(yaml.Unmarshal([]byte(content), &u.Object)).To(Succeed())
	u.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	u.SetNamespace("ns")
	u.SetName(name)
	u.SetUID(types.UID(name))
	u.SetManagedFields(fields)
	return u
}

// owns returns the managed fields entry of a manager for an object of this version. fields is YAML.
func owns(apiVersion, manager, fields string) metav1.ManagedFieldsEntry {
	raw, err := yaml.YAMLToJSON([]byte(fields))
	if err != nil {
		panic(err)
	}
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: apiVersion, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(string(raw)),
	}
}

// teamed returns an object with the inherited label team, and a label of another manager.
func teamed(t *testing.T, apiVersion, kind, name string) *unstructured.Unstructured {
	t.Helper()
	return object(t, apiVersion, kind, name, `{metadata: {labels: {team: ml, mine: "yes"}}}`,
		owns(apiVersion, "heirloom", `{f:metadata: {f:labels: {f:team: {}}}}`), owns(apiVersion, "user", `{f:metadata: {f:labels: {f:mine: {}}}}`))
}

// inherits applies the label team to a Machine, as a webhook or the loop of another Heirloom would.
func (s *apiServer) inherits(t *testing.T, name string) {
	t.Helper()
	u := object(t, core, "Machine", name, `{metadata: {labels: {team: ml}}}`)
	u.SetUID("")
	config := client.ApplyConfigurationFromUnstructured(u)
	NewWithT(t).Expect(s.others.Apply(t.Context(), config, client.FieldOwner("heirloom"), client.ForceOwnership)).To(Succeed())
}

// run is a run of heirloom cleanup, with its output.
type run struct {
	Cleaner
	out, progress bytes.Buffer
}

// cleaning returns a run without a leader of Heirloom.
func cleaning(management *apiServer, options Options) *run {
	c := &config.Config{Options: config.Options{WorkloadClusters: true}, ProviderGroups: []string{"infrastructure.cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io"}}
	c.WebhookConfiguration, c.LeaderElectNamespace = "heirloom", "heirloom-system"
	r := &run{Cleaner: Cleaner{Options: options, Config: c, Management: management, Discovery: discovers(served)}}
	r.Out, r.Progress = &r.out, &r.progress
	return r
}

// within limits the run to the objects of this Heirloom.
func (r *run) within(namespace, watchFilter string) *run {
	if r.Config.WatchFilter = watchFilter; namespace != "" {
		r.Config.Namespaces = strings.Split(namespace, ",")
	}
	return r
}

// dryRun writes nothing.
var dryRun = Options{Mode: Mode{DryRun: true}}

// discovers returns a discovery client that serves these kinds.
func discovers(kinds map[string][]string) discovery.DiscoveryInterface {
	d := &fakediscovery.FakeDiscovery{Fake: &clientgotesting.Fake{}}
	for version, names := range kinds {
		list := &metav1.APIResourceList{GroupVersion: version}
		for _, kind := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: strings.ToLower(kind) + "s", Kind: kind, Verbs: metav1.Verbs{"list", "patch"}, Namespaced: kind != "Node",
			})
		}
		d.Resources = append(d.Resources, list)
	}
	return d
}

func node(name string, labels, annotations map[string]string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}, Spec: corev1.NodeSpec{Taints: taints},
	}
}
