// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

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

// text prints a forest as people see it.
func text(t *testing.T, f *Forest, wide bool) string {
	t.Helper()
	var out bytes.Buffer
	NewWithT(t).Expect(printers.NewTablePrinter(printers.PrintOptions{Wide: true}).PrintObj(f.Table(wide), &out)).To(Succeed())
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	for _, note := range f.Notes {
		lines = append(lines, "Note: "+note)
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestEqualMachinesShareALine(t *testing.T) {
	g := NewWithT(t)
	forest := prod(500).forest(t, View{})
	golden(t, "equal", text(t, forest, false))
	g.Expect(strings.Count(text(t, forest, false), "\n")).To(BeNumerically("<=", 60))
	states := map[State]int{}
	forest.Trees[0].each(func(i *Item) { states[i.State]++ })
	g.Expect(states).To(Equal(map[State]int{Declares: 2, OK: 3 + 3*503}), "a program gets every object")
}

func TestEveryObject(t *testing.T) {
	forest := prod(2).forest(t, View{ShowAll: true})
	golden(t, "showall", text(t, forest, false))
	golden(t, "wide", text(t, forest, true))
	golden(t, "namespaces", text(t, prod(2).forest(t, View{Namespaces: true}), false))
}

// -o name lists every object, such as for xargs.
func TestNames(t *testing.T) {
	NewWithT(t).Expect(prod(1).forest(t, View{}).Names()).To(ContainElements(
		"clusterclass.cluster.x-k8s.io/quick", "cluster.cluster.x-k8s.io/prod", HavePrefix("machinedeployment.cluster.x-k8s.io/"), HavePrefix("machine.cluster.x-k8s.io/"),
		HavePrefix("node/"),
	))
}

// drifted is a world in which something of every sort is not as it should be.
func drifted() *world {
	w := prod(8)
	w.deployment.Spec.Template.Labels["node.cluster.x-k8s.io/pool"] = "other"
	w.deployment.Annotations = map[string]string{"note": strings.Repeat("long ", 20)}
	w.set.Annotations = map[string]string{"note": w.deployment.Annotations["note"]}
	delete(w.set.Labels, "shift")
	workers := w.machines[3:]
	delete(workers[0].Labels, "shift")
	workers[0].Spec.Taints = nil
	workers[1].Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	workers[2].Labels[inherit.IgnoreLabel] = ""
	workers[3].Labels["node.cluster.x-k8s.io/own"] = "yes"
	w.infra[3+4].SetLabels(without(w.infra[3+4].GetLabels(), "tier"))
	w.nodes[3+5].Spec.Taints[0].Value = "false"
	workers[6].Spec.Taints = append(workers[6].Spec.Taints, clusterv1.MachineTaint{
		Key: "out", Effect: corev1.TaintEffectNoExecute, Propagation: clusterv1.MachineTaintPropagationAlways,
	})
	workers[7].OwnerReferences[0].Name = "gone"
	stranger := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}, Spec: corev1.NodeSpec{ProviderID: "acme://nobody"}}
	w.nodes = append(w.nodes, stranger)
	return w
}

func TestDrift(t *testing.T) {
	forest := drifted().forest(t, View{})
	golden(t, "drift", text(t, forest, false))
	golden(t, "drift-wide", text(t, forest, true))
	for _, format := range []string{Mermaid, Dot} {
		var out bytes.Buffer
		NewWithT(t).Expect(forest.Draw(&out, format)).To(Succeed())
		golden(t, "drift-"+format, out.String())
	}
}

// A taint that evicts Pods waits for its turn if there is a rate, and an Initialize taint of the same Node waits with it.
func TestWaitingTaints(t *testing.T) {
	drift := func(flags ...string) []Drift {
		w := prod(1)
		w.flags = flags
		machine := w.machines[3]
		machine.Spec.Taints = append(machine.Spec.Taints,
			clusterv1.MachineTaint{Key: "out", Effect: corev1.TaintEffectNoExecute, Propagation: clusterv1.MachineTaintPropagationOnInitialization},
			clusterv1.MachineTaint{Key: "first", Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationOnInitialization})
		var found []Drift
		w.forest(t, View{}).Trees[0].each(func(i *Item) {
			if i.Kind == "Node" {
				found = append(found, i.Drift...)
			}
		})
		return found
	}
	is := func(key string, state Difference) Drift {
		return Drift{Kind: "taint", Key: key, Is: state, DeclaredBy: "Machine fleet/prod-md-0-abc-0 (spec.taints)"}
	}
	NewWithT(t).Expect(drift()).To(ConsistOf(is("out:NoExecute", Waiting), is("first:NoSchedule", Waiting)))
	NewWithT(t).Expect(drift("--no-execute-rate=0")).To(ConsistOf(is("out:NoExecute", Missing), is("first:NoSchedule", Missing)))
}

// What the server does not watch has not drifted: it is left alone.
func TestAnotherNamespace(t *testing.T) {
	w := drifted()
	w.flags = []string{"--namespace=other"}
	states := map[State]int{}
	forest := w.forest(t, View{})
	forest.Trees[0].each(func(i *Item) { states[i.State]++ })
	NewWithT(t).Expect(states).NotTo(HaveKey(Drifted))
	NewWithT(t).Expect(text(t, forest, false)).To(ContainSubstring("left alone: the server only watches namespace other"))
}

func TestAPausedClusterSaysWhatIsDeclared(t *testing.T) {
	w := prod(2)
	w.cluster.Spec.Paused = new(true)
	w.nodesErr = errors.New("no route\nto host")
	golden(t, "paused", text(t, w.forest(t, View{}), false))
}

// What cannot be inherited, and what cannot be read, is said where it is missing.
func TestWhatIsLeftOutAndWhatCannotBeRead(t *testing.T) {
	w := prod(2)
	w.deployment.Spec.Template.Labels["bad"] = "no label value"
	w.cluster.Spec.Topology.ClassRef.Name = "gone"
	w.nodes = nil
	golden(t, "leftout", text(t, w.forest(t, View{}), false))
}
