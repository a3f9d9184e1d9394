// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// connect connects a Cluster to a workload cluster with these objects. From then on the Cluster is not the management cluster.
func (l *loop) connect(name string, objects ...client.Object) client.WithWatch {
	l.t.Helper()
	builder := fake.NewClientBuilder().WithScheme(newWorkloadScheme(l.t)).WithObjects(objects...)
	for field, values := range owners.Indexes(&corev1.Node{}) {
		builder.WithIndex(&corev1.Node{}, field, values)
	}
	server := selectable(builder).Build()
	if l.ManagementCluster == key(name) {
		l.ManagementCluster = client.ObjectKey{}
	}
	l.workloads.servers[key(name)] = server
	l.workloads.clients[key(name)] = interceptor.NewClient(server, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			what := "in " + name + ": " + describePatch(l.t, l.kindOf(object).Kind, object, patch, options)
			return l.write(what, func() error { return c.Patch(ctx, object, patch, options...) })
		},
		SubResourceCreate: l.evict,
	})
	return server
}

// newServer returns a fake API server with the indexes of the caches.
func (l *loop) newServer(scheme *runtime.Scheme, objects []client.Object) client.WithWatch {
	builder := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(l.mapper).WithTypeConverters(newConverter(l.t)).
		WithReturnManagedFields().WithObjects(objects...)
	l.informers.index = func(object client.Object, field string, values client.IndexerFunc) {
		builder.WithIndex(object, field, values)
	}
	l.Expect(owners.Prepare(l.t.Context(), l.informers, true)).To(Succeed())
	return selectable(builder).Build()
}

// selectable adds the field selectors that API servers support.
func selectable(builder *fake.ClientBuilder) *fake.ClientBuilder {
	return builder.WithIndex(&corev1.Node{}, "metadata.name", func(object client.Object) []string { return []string{object.GetName()} }).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(object client.Object) []string { return []string{object.(*corev1.Pod).Spec.NodeName} }) //nolint:forcetypeassert // of an index
}

// evict notes the eviction of a Pod and returns its answer.
func (l *loop) evict(ctx context.Context, c client.Client, subResource string, pod, eviction client.Object, options ...client.SubResourceCreateOption) error {
	l.Expect(subResource).To(Equal("eviction"))
	l.Expect(eviction.(*policyv1.Eviction).DeleteOptions.Preconditions.UID).To(HaveValue(Equal(pod.GetUID()))) //nolint:forcetypeassert // see above
	if ctx.Err() != nil {
		return fmt.Errorf("posting: %w", ctx.Err())
	}
	l.writes.note("evicts " + pod.GetName())
	select {
	case <-ctx.Done():
		return fmt.Errorf("posting: %w", ctx.Err())
	case <-time.After(l.evictionTakes):
	}
	if err := l.staying[pod.GetName()]; err != nil {
		return err
	}
	return c.SubResource(subResource).Create(ctx, pod, eviction, options...)
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := newWorkloadScheme(t)
	NewWithT(t).Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	for _, kind := range providerKinds() {
		scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
	}
	return scheme
}

// newWorkloadScheme has only the kinds that the loop uses in a workload cluster: a fake server iterates over all kinds for every write.
func newWorkloadScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Node{}, &corev1.NodeList{}, &corev1.Namespace{}, &corev1.NamespaceList{},
		&corev1.ConfigMap{}, &corev1.ConfigMapList{}, &corev1.Pod{}, &corev1.PodList{})
	scheme.AddKnownTypes(policyv1.SchemeGroupVersion, &policyv1.Eviction{})
	NewWithT(t).Expect(admissionregistrationv1.AddToScheme(scheme)).To(Succeed())
	return scheme
}

// providerKinds are the kinds of the provider: control plane, InfraMachine and BootstrapConfig.
func providerKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Group: inherit.ControlPlaneGroup, Version: "v1beta2", Kind: "FakeControlPlane"},
		{Group: inherit.InfrastructureGroup, Version: "v1beta2", Kind: "FakeMachine"},
		{Group: inherit.BootstrapGroup, Version: "v1beta2", Kind: "FakeConfig"},
	}
}

func providerKind(kind string) (found schema.GroupVersionKind) {
	for _, gvk := range providerKinds() {
		if gvk.Kind == kind {
			found = gvk
		}
	}
	return found
}

func newMapper() *meta.DefaultRESTMapper {
	kinds, versions := append(providerKinds(), clusterv1.GroupVersion.WithKind("Machine")), []schema.GroupVersion{}
	for _, kind := range kinds {
		versions = append(versions, kind.GroupVersion())
	}
	mapper := meta.NewDefaultRESTMapper(append(versions, schema.GroupVersion{Group: "example.com", Version: "v1beta2"}))
	for _, kind := range kinds {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	return mapper
}

func (l *loop) getLive(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	l.live.note(strings.Join([]string{l.kindOf(into).Kind, key.Name}, "/"))
	if l.refuseLive != nil {
		return l.refuseLive
	}
	if err := l.broken["live "+l.kindOf(into).Kind]; err != nil {
		return err
	}
	return c.Get(ctx, key, into)
}

func (l *loop) listLive(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	if err := l.broken["live "+l.kindOf(list).Kind]; err != nil {
		return err
	}
	if l.listTakes > 0 {
		<-time.After(l.listTakes)
	}
	return c.List(ctx, list, options...)
}

// getCached reads an object from the cache, and sets its kind, as an informer cache does.
func (l *loop) getCached(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	gvk := l.kindOf(into)
	if err := l.broken[gvk.Kind]; err != nil {
		if waits, ok := err.(waiting); ok { //nolint:errorlint // it is as it was set
			<-ctx.Done()
			return waits.StatusError
		}
		return err
	}
	if kept := l.stale[gvk.Kind+"/"+key.Name]; kept != nil {
		transfer(l.t, kept, into)
	} else if err := c.Get(ctx, key, into); err != nil {
		return err
	}
	into.GetObjectKind().SetGroupVersionKind(gvk)
	return nil
}

func (l *loop) listCached(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	if err := l.broken[strings.TrimSuffix(l.kindOf(list).Kind, "List")]; err != nil {
		return err
	}
	if err := c.List(ctx, list, options...); err != nil {
		return err
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(client.Object)
		l.Expect(ok).To(BeTrue())
		if kept := l.stale[l.kindOf(object).Kind+"/"+object.GetName()]; kept != nil {
			transfer(l.t, kept, object)
		}
		object.GetObjectKind().SetGroupVersionKind(l.kindOf(object))
		return nil
	})
}

func (l *loop) apply(ctx context.Context, c client.WithWatch, config runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	what := describeApply(l.t, config, options)
	return l.write(what, func() error {
		err := c.Apply(ctx, config, options...)
		if applied, ok := config.(metav1.Object); ok && err == nil {
			l.writtenAs(applied)
		}
		return err
	})
}

func (l *loop) patch(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	what := describePatch(l.t, l.kindOf(object).Kind, object, patch, options)
	return l.write(what, func() error {
		err := c.Patch(ctx, object, patch, options...)
		if err == nil {
			l.writtenAs(object)
		}
		return err
	})
}

// write notes a write after its answer.
func (l *loop) write(what string, send func() error) error {
	defer l.writes.note(what)
	if l.refuse != nil {
		return l.refuse
	}
	return send()
}

// fieldSchema declares the maps and lists with keys of the inherited fields. Other fields have deduced types.
const fieldSchema = `
types:
- name: object
  map:
    fields: [{name: metadata, type: {namedType: metadata}}, {name: spec, type: {namedType: spec}}]
    elementType: {namedType: __untyped_deduced_}
- name: metadata
  map:
    fields: [{name: labels, type: {map: {elementType: {scalar: string}}}}, {name: annotations, type: {map: {elementType: {scalar: string}}}}]
    elementType: {namedType: __untyped_deduced_}
- name: spec
  map:
    fields:
    - {name: taints, type: {list: {elementType: {namedType: __untyped_deduced_}, elementRelationship: associative, keys: [effect, key]}}}
    - {name: template, type: {namedType: object}}
    - {name: machineTemplate, type: {namedType: object}}
    elementType: {namedType: __untyped_deduced_}
- name: __untyped_deduced_
  scalar: untyped
  list: {elementType: {namedType: __untyped_deduced_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_deduced_}, elementRelationship: separable}
`

// converter makes the fake API server track field ownership.
type converter struct{ object typed.ParseableType }

func newConverter(t *testing.T) converter {
	t.Helper()
	parser, err := typed.NewParser(fieldSchema)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return converter{parser.Type("object")}
}

// ObjectToTyped implements managedfields.TypeConverter.
func (c converter) ObjectToTyped(object runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	return c.object.FromUnstructured(content, options...)
}

// TypedToObject implements managedfields.TypeConverter.
func (c converter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	content, ok := value.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("expected an object, got %T", value.AsValue().Unstructured())
	}
	return &unstructured.Unstructured{Object: content}, nil
}
