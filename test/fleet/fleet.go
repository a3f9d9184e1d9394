// SPDX-License-Identifier: Apache-2.0

// Package fleet makes management clusters for the plugin's tests, and compares output with golden files.
package fleet

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/store"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Update says whether tests write the expected output.
var Update = flag.Bool("update", false, "write the golden files and what commands print into the scripts")

// Golden compares text with a file in testdata, which go test -update writes.
func Golden(t *testing.T, name, text string) {
	t.Helper()
	Expect, file := gomega.NewWithT(t).Expect, filepath.Join("testdata", name+".golden")
	if *Update {
		Expect(os.WriteFile(file, []byte(text), 0o600)).To(gomega.Succeed())
	}
	want, err := os.ReadFile(file)
	Expect(err).NotTo(gomega.HaveOccurred())
	Expect(text).To(gomega.Equal(string(want)), "go test -update writes it anew")
}

// Objects returns the objects in a file: documents, or lists of objects.
func Objects(t *testing.T, file string) (all []client.Object) {
	t.Helper()
	raw, err := os.ReadFile(file)
	gomega.NewWithT(t).Expect(err).NotTo(gomega.HaveOccurred())
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		var list []map[string]any
		if yaml.Unmarshal(document, &list) != nil {
			list = make([]map[string]any, 1)
			gomega.NewWithT(t).Expect(errors.Join(err, yaml.Unmarshal(document, &list[0]))).To(gomega.Succeed())
		}
		for _, object := range list {
			all = append(all, &unstructured.Unstructured{Object: object})
		}
	}
}

// Named returns the metadata of an object in namespace default. Its controller is "<kind>/<name>", or "" for none.
func Named(name, controller string) metav1.ObjectMeta {
	object := metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}
	if kind, owner, ok := strings.Cut(controller, "/"); ok {
		object.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Name: owner, UID: types.UID(owner), Controller: new(true),
		}}
	}
	return object
}

// Server returns the builder of a fake API server with these objects. It also serves AcmeMachines and AcmeControlPlanes.
func Server(objects ...client.Object) *fake.ClientBuilder {
	scheme := runtime.NewScheme()
	infrastructure, controlPlanes := schema.GroupVersion{Group: inherit.InfrastructureGroup, Version: "v1beta2"}, schema.GroupVersion{Group: inherit.ControlPlaneGroup, Version: "v1beta2"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{infrastructure, controlPlanes})
	utilruntime.Must(errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme)))
	for _, gvk := range []schema.GroupVersionKind{infrastructure.WithKind("AcmeMachine"), controlPlanes.WithKind("AcmeControlPlane")} {
		mapper.Add(gvk, meta.RESTScopeNamespace)
		scheme.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(gvk.GroupVersion().WithKind(gvk.Kind+"List"), &unstructured.UnstructuredList{})
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).WithReturnManagedFields().
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(pod client.Object) []string { return []string{pod.(*corev1.Pod).Spec.NodeName} }) //nolint:forcetypeassert // of an index
}

// Asks calls a function with each request before the request is answered: "get <kind> <key>" or "list <kind>List". If the function returns
// an error, this error is the answer.
func Asks(asked func(request string) error) interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			gvk, _ := c.GroupVersionKindFor(into)
			return cmp.Or(asked("get "+gvk.Kind+" "+key.String()), c.Get(ctx, key, into, options...))
		},
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
			gvk, _ := c.GroupVersionKindFor(into)
			return cmp.Or(asked("list "+gvk.Kind), c.List(ctx, into, options...))
		},
	}
}

// World returns the world of an API server and a Heirloom with these flags. The API server has the Nodes of all Clusters.
func World(t *testing.T, live client.Client, flags ...string) compare.World {
	t.Helper()
	known, err := (&settings.Flags{ServerFlags: append([]string{"--cluster-api-taint-propagation=enabled"}, flags...)}).Offline()
	gomega.NewWithT(t).Expect(err).NotTo(gomega.HaveOccurred())
	layout := func(context.Context, schema.GroupVersionKind) (inherit.Layout, error) {
		return inherit.ControlPlaneLayout("v1beta2", func(...string) bool { return true }), nil
	}
	return compare.World{Store: store.New(live, layout), Settings: known, Now: time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC), Nodes: func(context.Context, types.NamespacedName) (client.Reader, error) {
		return live, nil
	}}
}
