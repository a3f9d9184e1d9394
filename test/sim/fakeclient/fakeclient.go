// SPDX-License-Identifier: Apache-2.0

// Package fakeclient makes controller-runtime's fake clients for unit tests, with the kinds and the indexes that Heirloom's caches have.
package fakeclient

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// The kinds of the provider Acme.
var (
	ControlPlane    = schema.GroupVersionKind{Group: inherit.ControlPlaneGroup, Version: "v1beta2", Kind: "AcmeControlPlane"}
	InfraMachine    = schema.GroupVersionKind{Group: inherit.InfrastructureGroup, Version: "v1beta2", Kind: "AcmeMachine"}
	BootstrapConfig = schema.GroupVersionKind{Group: inherit.BootstrapGroup, Version: "v1beta2", Kind: "AcmeConfig"}
)

// newScheme has only the kinds that Heirloom uses: a fake client iterates over all kinds for every write.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Node{}, &corev1.NodeList{}, &corev1.Namespace{}, &corev1.NamespaceList{},
		&corev1.ConfigMap{}, &corev1.ConfigMapList{}, &corev1.Pod{}, &corev1.PodList{})
	scheme.AddKnownTypes(policyv1.SchemeGroupVersion, &policyv1.Eviction{})
	scheme.AddKnownTypes(storagev1.SchemeGroupVersion, &storagev1.CSINode{})
	utilruntime.Must(errors.Join(admissionregistrationv1.AddToScheme(scheme), clusterv1.AddToScheme(scheme)))
	for _, gvk := range []schema.GroupVersionKind{ControlPlane, InfraMachine, BootstrapConfig} {
		scheme.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(gvk.GroupVersion().WithKind(gvk.Kind+"List"), &unstructured.UnstructuredList{})
	}
	return scheme
}

// Mapper returns a mapper that has Machines and the kinds of Acme.
func Mapper() *meta.DefaultRESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{
		ControlPlane.GroupVersion(), InfraMachine.GroupVersion(), BootstrapConfig.GroupVersion(), clusterv1.GroupVersion,
	})
	for _, gvk := range []schema.GroupVersionKind{ControlPlane, InfraMachine, BootstrapConfig, clusterv1.GroupVersion.WithKind("Machine")} {
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	return mapper
}

// Builder returns the builder of a fake client with these objects. Its lists can use the indexes of package owners, and the field selectors
// of an API server.
func Builder(objects ...client.Object) *fake.ClientBuilder {
	builder := fake.NewClientBuilder().WithScheme(newScheme()).WithRESTMapper(Mapper()).
		WithTypeConverters(newConverter()).WithReturnManagedFields()
	for _, object := range objects {
		if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
			object.SetFinalizers([]string{"heirloom.dev/test"}) // otherwise it would be gone
		}
		builder.WithObjects(object)
	}
	utilruntime.Must(owners.Prepare(context.Background(), &indexes{builder: builder}, true))
	return builder.
		WithIndex(&corev1.Node{}, "metadata.name", func(node client.Object) []string { return []string{node.GetName()} }).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(pod client.Object) []string {
			return []string{pod.(*corev1.Pod).Spec.NodeName} //nolint:forcetypeassert // of an index
		})
}

// indexes is a cache that adds its indexes to a fake client.
type indexes struct {
	informertest.FakeInformers
	builder *fake.ClientBuilder
}

func (i *indexes) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, nil
}

func (i *indexes) IndexField(_ context.Context, kind client.Object, field string, values client.IndexerFunc) error {
	i.builder.WithIndex(kind, field, values)
	return nil
}

// New returns a fake client with these objects.
func New(objects ...client.Object) client.WithWatch { return Builder(objects...).Build() }

// Cache returns a client that answers like a cache: all readers of an object share its maps and lists. The test fails if one of them
// changes the object. The objects of the server must not change.
func Cache(t testing.TB, server client.WithWatch) client.WithWatch {
	t.Helper()
	c := &sharing{objects: map[string]shared{}}
	t.Cleanup(func() { // a fuzz target may not add cleanups later
		for id, object := range c.objects {
			if !reflect.DeepEqual(object.shared, object.before) {
				t.Errorf("a reader has changed %s in the cache:\n%+v", id, object.shared)
			}
		}
	})
	return interceptor.NewClient(server, interceptor.Funcs{
		Get: func(ctx context.Context, server client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			if err := server.Get(ctx, key, into, options...); err != nil {
				return err
			}
			c.share(into)
			return nil
		},
		List: func(ctx context.Context, server client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := server.List(ctx, list, options...); err != nil {
				return err
			}
			return meta.EachListItem(list, func(item runtime.Object) error {
				c.share(item.(client.Object)) //nolint:forcetypeassert // it panics
				return nil
			})
		},
	})
}

type sharing struct {
	mu      sync.Mutex
	objects map[string]shared
}

// shared holds an object that all readers share, and a private copy.
type shared struct{ shared, before client.Object }

// share replaces an object that was read by the shared object.
func (c *sharing) share(object client.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := fmt.Sprintf("%T %s %s", object, object.GetObjectKind().GroupVersionKind(), client.ObjectKeyFromObject(object))
	all, known := c.objects[id]
	if !known {
		all = shared{shared: copyOf(object), before: copyOf(object)}
		c.objects[id] = all
	}
	reflect.ValueOf(object).Elem().Set(reflect.ValueOf(all.shared).Elem())
}

func copyOf(object client.Object) client.Object {
	return object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same type
}
