// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// expectEqualChain is expectEqual without the Nodes.
func (p *pair) expectEqualChain(after string) {
	p.t.Helper()
	p.expectEqualParts(after, func(w *world, chain []unstructured.Unstructured) []string { return withoutNodes(w.snapshot(chain)) })
}

func withoutNodes(snapshot []string) []string {
	return slices.DeleteFunc(snapshot, func(object string) bool { return strings.HasPrefix(object, "kind: Node\n") })
}

// nodes returns the Nodes that have a Machine of the plain Cluster. An InfraMachine whose Machine is refused is deleted
// again, but its kubelet may have registered meanwhile.
func (w *world) nodes(g Gomega) []corev1.Node {
	list := &corev1.NodeList{}
	g.Expect(w.workload.Client.List(w.ctx, list)).To(Succeed())
	machines := w.machines(plain)
	return slices.DeleteFunc(list.Items, func(node corev1.Node) bool {
		return !slices.ContainsFunc(machines, func(m unstructured.Unstructured) bool { return m.GetName() == node.Name })
	})
}

// eventuallyEachNode waits until a check holds for every Node there is.
func (w *world) eventuallyEachNode(check func(Gomega, corev1.Node)) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		for _, node := range w.nodes(g) {
			check(g, node)
		}
	}).Should(Succeed())
}

// tracked expects what the annotations of a Node list: Cluster API's, and Heirloom's own.
func tracked(g Gomega, node corev1.Node, byClusterAPI, byHeirloom string) {
	g.Expect(node.Annotations).To(HaveKeyWithValue(clusterv1.TaintsFromMachineAnnotation, byClusterAPI), node.Name)
	if byHeirloom == "" {
		g.Expect(node.Annotations).NotTo(HaveKey(inherit.TaintsFromMachineAnnotation), node.Name)
		return
	}
	g.Expect(node.Annotations).To(HaveKeyWithValue(inherit.TaintsFromMachineAnnotation, byHeirloom), node.Name)
}

// contents are what a Node has had in it, each time that something of it changed that is inherited.
func contents(versions []controlplane.Version, name string) []inherit.NodeState {
	var states []inherit.NodeState
	for _, version := range versions {
		if version.Object.GetName() != name {
			continue
		}
		state := inherit.NodeState{Labels: version.Object.GetLabels(), Annotations: ofMachine(version.Object.GetAnnotations()), Taints: taintsOf(version.Object)}
		if len(states) == 0 || !states[len(states)-1].Equal(state) {
			states = append(states, state)
		}
	}
	return states
}

// ofMachine leaves out annotations that Cluster API's controllers and the kubelet write for reasons of their own.
func ofMachine(annotations map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range annotations {
		if slices.Contains(inherit.TrackingAnnotations, key) || strings.Contains(key, clusterv1.ManagedNodeAnnotationDomain) {
			kept[key] = value
		}
	}
	return kept
}

func taintsOf(node *unstructured.Unstructured) []corev1.Taint {
	items, _, _ := unstructured.NestedSlice(node.Object, "spec", "taints")
	raw, err := json.Marshal(items)
	if err != nil {
		panic(err) // it has been JSON
	}
	var taints []corev1.Taint
	if err := json.Unmarshal(raw, &taints); err != nil {
		panic(err)
	}
	return taints
}

// read returns what is in a file, such as the log of a program.
func (w *world) read(file string) string {
	w.t.Helper()
	content, err := os.ReadFile(file)
	w.Expect(err).NotTo(HaveOccurred())
	return string(content)
}

// deleteMachine deletes a Machine of the plain Cluster and waits until it is gone.
func (w *world) deleteMachine(prefix string) {
	w.t.Helper()
	machines := w.machines(plain)
	i := slices.IndexFunc(machines, func(m unstructured.Unstructured) bool { return strings.HasPrefix(m.GetName(), prefix) })
	w.Expect(i).To(BeNumerically(">=", 0), prefix)
	w.Expect(w.Client.Delete(w.ctx, &machines[i])).To(Succeed())
	w.expectGone(&machines[i])
}
