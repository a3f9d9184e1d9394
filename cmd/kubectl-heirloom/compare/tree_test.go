// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/store"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

var update = flag.Bool("update", false, "write the golden files")

// serve returns the world of testdata/fleet.yaml, and what its API server is asked for.
func serve(t *testing.T) (*World, *[]string) {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	g.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	acme := schema.GroupVersionKind{Group: inherit.InfrastructureGroup, Version: "v1beta2", Kind: "AcmeMachine"}
	scheme.AddKnownTypeWithName(acme, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(acme.GroupVersion().WithKind("AcmeMachineList"), &unstructured.UnstructuredList{})
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{acme.GroupVersion()})
	mapper.Add(acme, meta.RESTScopeNamespace)
	asked := &[]string{}
	live := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objectsIn(t, "testdata/fleet.yaml")...).
		WithReturnManagedFields().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			*asked = append(*asked, "get "+into.GetObjectKind().GroupVersionKind().Kind+" "+key.Name)
			return c.Get(ctx, key, into, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			*asked = append(*asked, "list "+list.GetObjectKind().GroupVersionKind().Kind)
			return c.List(ctx, list, options...)
		},
	}).Build()
	known, err := (&settings.Flags{}).Offline()
	g.Expect(err).NotTo(HaveOccurred())
	known.Propagation = inherit.PropagationEnabled
	w := &World{Store: store.New(live, nil), Settings: known, Now: time.Unix(1e9, 0)}
	w.Nodes = func(context.Context, types.NamespacedName) (client.Reader, error) { return live, nil }
	return w, asked
}

func objectsIn(t *testing.T, file string) (all []client.Object) {
	t.Helper()
	g := NewWithT(t)
	raw, err := os.ReadFile(file) //nolint:gosec // testdata
	g.Expect(err).NotTo(HaveOccurred())
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		g.Expect(err).NotTo(HaveOccurred())
		u := &unstructured.Unstructured{}
		g.Expect(yaml.Unmarshal(document, &u.Object)).To(Succeed())
		all = append(all, u)
	}
}

// Each entry of each object of a Cluster, as all commands see it.
func TestTree(t *testing.T) {
	g := NewWithT(t)
	w, asked := serve(t)
	tree, err := w.Tree(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "prod"}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*asked).To(ConsistOf("list ClusterList", "list ClusterClassList", "list MachineDeploymentList", "list MachinePoolList",
		"list MachineSetList", "list MachineList", "list AcmeMachineList", "list " /* Nodes */), "each list is read once, and no object alone")
	var out strings.Builder
	write(&out, tree.Class, "")
	write(&out, tree.Object, "")
	for _, node := range tree.Strangers {
		write(&out, node, "")
	}
	if *update {
		g.Expect(os.WriteFile("testdata/tree.golden", []byte(out.String()), 0o600)).To(Succeed())
	}
	want, err := os.ReadFile("testdata/tree.golden")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out.String()).To(Equal(string(want)))
}

func write(out *strings.Builder, o *Object, indent string) {
	fmt.Fprintf(out, "%s%s", indent, o.Ref)
	if o.LeftAlone != "" {
		fmt.Fprintf(out, " left alone: %s", o.LeftAlone)
	}
	if o.Err != nil {
		fmt.Fprintf(out, " error: %v", o.Err)
	}
	out.WriteString("\n")
	for _, e := range o.Entries {
		fmt.Fprintf(out, "%s  - %s %s=%q %s", indent, e.Kind, e.Key, e.Value, e.Status)
		if e.Declared != nil {
			fmt.Fprintf(out, ", declared %q", *e.Declared)
		}
		if e.Rule != "" {
			fmt.Fprintf(out, ", %s from %s", e.Rule, e.From)
		}
		if len(e.Managers) > 0 {
			fmt.Fprintf(out, ", managers %s", strings.Join(e.Managers, ","))
		}
		out.WriteString("\n")
	}
	for _, child := range o.Children {
		write(out, child, indent+"  ")
	}
}

// What a visit puts into the store is what the objects below inherit.
func TestVisit(t *testing.T) {
	g := NewWithT(t)
	w, _ := serve(t)
	var nodes []string
	_, err := w.Tree(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "prod"}, func(o *Object) error {
		if o.Kind == "MachineSet" {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(o.GVK)
			var err error
			u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(o.Ref.Object)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(unstructured.SetNestedField(u.Object, "new", "spec", "template", "metadata", "labels", "added")).To(Succeed())
			w.Store.Put(u)
		}
		for _, e := range o.Entries {
			if e.Key == "added" {
				nodes = append(nodes, fmt.Sprintf("%s %s=%s %s", o.Ref, e.Key, e.Value, e.Status))
			}
		}
		return nil
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(nodes).To(ConsistOf("Machine fleet/good added=new missing", "Machine fleet/lacking added=new missing", "AcmeMachine fleet/good added=new missing"))
}
