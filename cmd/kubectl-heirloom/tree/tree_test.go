// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
	"k8s.io/cli-runtime/pkg/printers"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/store"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// update writes what is printed now into the golden files.
var update = flag.Bool("update", false, "write the golden files")

// golden compares text with a file in testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	g := NewWithT(t)
	file := filepath.Join("testdata", name+".golden")
	if *update {
		g.Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
	}
	want, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(Equal(string(want)))
}

// trees returns what the plugin knows of Clusters of testdata/fleet.yaml. The Nodes are those of prod.
func trees(t *testing.T, change func(u *unstructured.Unstructured), clusters ...string) []*compare.Tree {
	t.Helper()
	g := NewWithT(t)
	raw, err := os.ReadFile("testdata/fleet.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	var objects []map[string]any
	g.Expect(yaml.Unmarshal(raw, &objects)).To(Succeed())
	scheme := runtime.NewScheme()
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	g.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{
		{Group: inherit.InfrastructureGroup, Version: "v1beta2"}, {Group: inherit.ControlPlaneGroup, Version: "v1beta2"},
	})
	for _, kind := range []schema.GroupVersionKind{
		{Group: inherit.InfrastructureGroup, Version: "v1beta2", Kind: "AcmeMachine"}, {Group: inherit.ControlPlaneGroup, Version: "v1beta2", Kind: "AcmeControlPlane"},
	} {
		mapper.Add(kind, meta.RESTScopeNamespace)
		scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
	}
	served := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithReturnManagedFields()
	for _, object := range objects {
		u := &unstructured.Unstructured{Object: object}
		change(u)
		served.WithObjects(u)
	}
	live := served.Build()
	known, err := (&settings.Flags{ServerFlags: []string{"--cluster-api-taint-propagation=enabled"}}).Offline()
	g.Expect(err).NotTo(HaveOccurred())
	w := &compare.World{Settings: known, Now: time.Now()}
	w.Store = store.New(live, func(context.Context, schema.GroupVersionKind) (inherit.Layout, error) {
		return inherit.ControlPlaneLayout("v1beta2", func(...string) bool { return true }), nil
	})
	w.Nodes = func(_ context.Context, cluster types.NamespacedName) (client.Reader, error) {
		if cluster.Name != "prod" {
			return nil, errors.New("no route\nto host")
		}
		return live, nil
	}
	var keys []types.NamespacedName
	for _, name := range clusters {
		keys = append(keys, types.NamespacedName{Namespace: "fleet", Name: name})
	}
	return w.Trees(t.Context(), keys)
}

func asIs(*unstructured.Unstructured) {}

func text(t *testing.T, f *Forest, wide bool) string {
	t.Helper()
	var out strings.Builder
	NewWithT(t).Expect(printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(f.Table(wide), &out)).To(Succeed())
	return out.String()
}

// A ClusterClass is there once, a Cluster that cannot be read hides no other, and equal Machines share a line.
func TestTrees(t *testing.T) {
	all := trees(t, asIs, "dev", "gone", "prod")
	f := New(all)
	narrow := text(t, f, false)
	golden(t, "narrow", narrow)
	for line := range strings.Lines(narrow) {
		NewWithT(t).Expect(len([]rune(line))).To(BeNumerically("<=", 101), line)
	}
	prod := New(all[2:])
	prod.ShowAll = true
	golden(t, "wide", text(t, prod, true))
	NewWithT(t).Expect([]bool{f.Has(Drifted), f.Has(Unknown), prod.Has(Unknown)}).To(Equal([]bool{true, true, false}))
	NewWithT(t).Expect(f.Names()).To(ContainElements("clusterclass.cluster.x-k8s.io/quick", "cluster.cluster.x-k8s.io/prod", "node/ml-0"))
}

// A program gets every object, with what it declares and what is wrong.
func TestJSON(t *testing.T) {
	raw, err := json.Marshal(New(trees(t, asIs, "prod")))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var items []string
	var walk func(map[string]any)
	walk = func(item map[string]any) {
		declares, _ := item["declares"].([]any)
		entries, _ := item["entries"].([]any)
		items = append(items, fmt.Sprint(item["kind"], " ", item["name"], " ", item["state"], " ", len(declares), " ", len(entries)))
		children, _ := item["children"].([]any)
		for _, child := range children {
			walk(child.(map[string]any)) //nolint:forcetypeassert // it panics
		}
	}
	var f struct{ Trees []map[string]any }
	NewWithT(t).Expect(json.Unmarshal(raw, &f)).To(Succeed())
	walk(f.Trees[0])
	NewWithT(t).Expect(items).To(ContainElements("ClusterClass quick declares 1 0", "MachineDeployment prod-ml drifted 1 1", "Machine ml-1 ok 0 0", "Node paused leftAlone 0 0"))
}

// Everything of a paused Cluster is left alone, and the tree still says what is declared.
func TestPaused(t *testing.T) {
	out := text(t, New(trees(t, func(u *unstructured.Unstructured) {
		if u.GetKind() == "Cluster" {
			NewWithT(t).Expect(unstructured.SetNestedField(u.Object, true, "spec", "paused")).To(Succeed())
		}
	}, "prod")), false)
	NewWithT(t).Expect(out).To(And(ContainSubstring("left alone: its Cluster is paused"), ContainSubstring("+ taint gpu=true:NoSchedule"), Not(ContainSubstring("!"))))
}
