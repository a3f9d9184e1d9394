// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/test/fleet"
)

// trees returns what the plugin knows of Clusters of testdata/fleet.yaml. The Nodes are those of prod.
func trees(t *testing.T, change func(object client.Object), clusters ...string) []*compare.Tree {
	t.Helper()
	objects := fleet.Objects(t, "testdata/fleet.yaml")
	for _, object := range objects {
		change(object)
	}
	live := fleet.Server(objects...).Build()
	w := fleet.World(t, live)
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

func asIs(client.Object) {}

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
	fleet.Golden(t, "narrow", narrow)
	for line := range strings.Lines(narrow) {
		NewWithT(t).Expect(len([]rune(line))).To(BeNumerically("<=", 101), line)
	}
	prod := New(all[2:])
	prod.ShowAll = true
	fleet.Golden(t, "wide", text(t, prod, true))
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
	out := text(t, New(trees(t, func(object client.Object) {
		if u := object.(*unstructured.Unstructured); u.GetKind() == "Cluster" { //nolint:forcetypeassert // it panics
			NewWithT(t).Expect(unstructured.SetNestedField(u.Object, true, "spec", "paused")).To(Succeed())
		}
	}, "prod")), false)
	NewWithT(t).Expect(out).To(And(ContainSubstring("left alone: its Cluster is paused"), ContainSubstring("+ taint gpu=true:NoSchedule"), Not(ContainSubstring("!"))))
}
