// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/test/fleet"
)

// serve returns the world of testdata/fleet.yaml, and what its API server is asked for.
func serve(t *testing.T) (w compare.World, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	live := fleet.Server(fleet.Objects(t, "testdata/fleet.yaml")...).WithInterceptorFuncs(fleet.Asks(func(request string) error {
		*asked = append(*asked, request)
		return nil
	})).Build()
	w = fleet.World(t, live)
	w.Now = time.Unix(1e9, 0)
	return w, asked
}

// Each entry of each object of a Cluster, as all commands see it.
func TestTree(t *testing.T) {
	g := NewWithT(t)
	w, asked := serve(t)
	tree, err := w.Tree(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "prod"}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*asked).To(ConsistOf("list ClusterList", "list ClusterClassList", "list MachineDeploymentList", "list MachinePoolList",
		"list MachineSetList", "list MachineList", "list AcmeMachineList", "list NodeList"), "each list is read once, and no object alone")
	var out strings.Builder
	write(&out, tree.Class, "")
	write(&out, tree.Object, "")
	for _, node := range tree.Strangers {
		write(&out, node, "")
	}
	fleet.Golden(t, "tree", out.String())
}

func write(out *strings.Builder, o *compare.Object, indent string) {
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
	_, err := w.Tree(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "prod"}, func(o *compare.Object) error {
		if o.Kind == "MachineSet" {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(o.GVK)
			var err error
			u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(o.Object)
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
