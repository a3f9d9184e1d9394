// SPDX-License-Identifier: Apache-2.0

package whatif_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	machineDeployment = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: md, namespace: default}
spec:
  clusterName: c
  template:
    metadata:
      labels: {node.cluster.x-k8s.io/team: ml}
`
	clusterClass = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: ClusterClass
metadata: {name: class, namespace: default}
spec:
  workers:
    machineDeployments:
    - class: a
      metadata:
        labels: {node.cluster.x-k8s.io/tier: gold, node.cluster.x-k8s.io/team: all}
`
	newOne = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: new, namespace: default}
spec: {clusterName: c}
`
	cluster = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: c, namespace: default}
spec:
  topology:
    classRef: {name: class}
    workers:
      machineDeployments:
      - name: a
        class: a
        metadata:
          labels: {node.cluster.x-k8s.io/team: ml}
`
)

func TestAMachineDeploymentReachesItsNodes(t *testing.T) {
	result := small().answer(t, machineDeployment)
	expectGolden(t, "machinedeployment", printed(t, result, false))
	expectGolden(t, "machinedeployment-show-all", printed(t, result, true))
}

// A ClusterClass reaches all its Clusters. What a topology declares in another file of the same change counts already.
func TestFilesCountTogether(t *testing.T) {
	result := small().answer(t, cluster, clusterClass)
	expectGolden(t, "clusterclass", printed(t, result, false))
	NewWithT(t).Expect(lines(result)).To(ContainElements(
		"Node m-2: + metadata.labels node.cluster.x-k8s.io/team=ml <- Cluster default/c (spec.topology.workers.machineDeployments[a].metadata.labels)",
		"Node m-2: + metadata.labels node.cluster.x-k8s.io/tier=gold <- "+
			"ClusterClass default/class (spec.workers.machineDeployments[a].metadata.labels)",
	))
}

// Asking twice gives the same answer, because the first time nothing is written.
func TestNothingIsWritten(t *testing.T) {
	w := small()
	from := w.snapshot(t)
	_, err := w.ask(t, from, machineDeployment, clusterClass)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	md := &clusterv1.MachineDeployment{}
	NewWithT(t).Expect(from.Live().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "md"}, md)).To(Succeed())
	NewWithT(t).Expect(md.Spec.Template.Labels).To(BeEmpty())
	NewWithT(t).Expect(lines(w.answer(t))).To(BeEmpty())
}

func TestWhatIsPending(t *testing.T) {
	w := small()
	w.find("md").(*clusterv1.MachineDeployment).Spec.Template.Labels = map[string]string{"node.cluster.x-k8s.io/team": "ml"}
	w.node("m-1").Labels["node.cluster.x-k8s.io/team"] = "ml"
	result := w.answer(t)
	const source = " <- MachineDeployment default/md (spec.template.metadata.labels)"
	NewWithT(t).Expect(lines(result)).To(ContainElements(
		"MachineSet ms: + metadata.labels node.cluster.x-k8s.io/team=ml"+source,
		"Machine m-0: + metadata.labels node.cluster.x-k8s.io/team=ml"+source,
		"Node m-0: + metadata.labels node.cluster.x-k8s.io/team=ml"+source,
		"Node m-1: + metadata.annotations=only the record of what came from the Machine <- ",
	))
	NewWithT(t).Expect(printed(t, result, false)).To(And(
		ContainSubstring("Node.m-0.of.default.c.and-1-other-like-it"), ContainSubstring("Node.m-1.of.default.c "),
	), "what changes in another way is shown by itself")
}

func TestWhatIsLeftOut(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*world)
		files  []string
		notes  string
	}{
		"kinds from which nothing inherits": {
			files: []string{"apiVersion: v1\nkind: Namespace\nmetadata: {name: fleet}"},
			notes: "Not shown, because nothing inherits from them: Namespace fleet (kubectl diff shows them).",
		},
		"a workload cluster that does not answer": {
			change: func(w *world) { w.unreachable = true },
			files:  []string{machineDeployment},
			notes:  "The Nodes of Cluster default/c are not shown, because its API server does not answer: connection refused.",
		},
		"a namespace that the server does not watch": {
			change: func(w *world) { w.flags.ServerFlags = []string{"--namespace=other"} },
			files:  []string{machineDeployment},
			notes:  "Cluster default/c is not looked at, because the server only watches namespace other.",
		},
		"a Cluster that does not exist": {
			files: []string{strings.Replace(newOne, "clusterName: c", "clusterName: d", 1)},
			notes: "Cluster default/d does not exist, so that nothing below the files is known.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := small()
			if test.change != nil {
				test.change(w)
			}
			result := w.answer(t, test.files...)
			NewWithT(t).Expect(result.Notes).To(ConsistOf(test.notes))
			for _, o := range result.Objects {
				NewWithT(t).Expect(o.Kind).NotTo(Equal("Node"))
			}
		})
	}
}

func TestWhatCannotBeAnswered(t *testing.T) {
	w := small()
	_, err := w.ask(t, w.snapshot(t), machineDeployment, machineDeployment)
	NewWithT(t).Expect(err).To(MatchError("MachineDeployment default/md is in the files twice: leave one of them out"))
	_, err = w.ask(t, w.snapshot(t), strings.Replace(machineDeployment, "v1beta2", "v1beta1", 1))
	NewWithT(t).Expect(err).To(MatchError(
		"MachineDeployment default/md is in cluster.x-k8s.io/v1beta1: convert it to cluster.x-k8s.io/v1beta2, in which Heirloom reads it"))
	w.management = w.management[:1]
	_, err = w.ask(t, w.snapshot(t))
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("evaluating Cluster default/c")))
}

// A new object has all of it as a difference, and nothing below it yet.
func TestAnObjectThatIsNew(t *testing.T) {
	result := small().answer(t, newOne)
	NewWithT(t).Expect(result.Summary()).To(Equal("1 MachineDeployment would change."))
	NewWithT(t).Expect(result.Objects[0].New).To(BeTrue())
	NewWithT(t).Expect(printed(t, result, false)).To(And(ContainSubstring("+kind: MachineDeployment"), Not(MatchRegexp(`(?m)^-[^-]`))))
}

// find returns an object of the management cluster, node one of the workload cluster.
func (w *world) find(name string) client.Object {
	for _, object := range w.management {
		if object.GetName() == name {
			return object
		}
	}
	return nil
}

func (w *world) node(name string) *corev1.Node {
	for _, object := range w.workload {
		if node, ok := object.(*corev1.Node); ok && node.Name == name {
			return node
		}
	}
	return nil
}
