// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/clusterapi"
	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// A Cluster goes to another management cluster with clusterctl move, and comes back to the first one out of a backup, after
// the other is lost. No Machine is replaced and no Node changes; what the owner drops then leaves everybody. A world without
// Heirloom, which has not moved and is restored where it was, ends the same.
func TestMoveAndRestore(t *testing.T) {
	t.Parallel() // most of it is waiting
	p := pair{newWorld(t, false, clusterapi.Options{}), newWorld(t, true, clusterapi.Options{})}
	p.do(func(w *world) {
		declared := inOrder()
		declared.Labels["node.cluster.x-k8s.io/later"], declared.Annotations["later"] = "goes", "too"
		w.deploy(1, declared)
		w.addLonely(declared)
	})
	expectEqual(p.alone, p.together, "create")
	w := p.together
	w.eventuallyEachNode(func(g Gomega, node corev1.Node) { tracked(g, node, "", "annotated-always=yes:NoSchedule") })
	recorder, err := controlplane.RecordVersions(w.ctx, w.workload.AdminConfig(), corev1.SchemeGroupVersion.WithResource("nodes"))
	w.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { w.Expect(recorder.Stop()).To(Succeed()) })

	other := w.another(clusterapi.Options{})
	before, owned, log := w.identities(), w.owned(), filepath.Join(w.dir, "heirloom.log")
	logged := len(w.read(log))
	w.move(other)
	expectEqual(p.alone, w, "clusterctl move")
	w.expectSame(before, recorder.All())
	w.Expect(w.owned()).To(Equal(owned), "what was Heirloom's there is Heirloom's here")
	w.Expect(errorsIn(w.read(log)[logged:])).To(BeEmpty(), "Heirloom has nothing to do any more where the Cluster was")

	p.do(func(w *world) {
		w.change(func(md *clusterv1.MachineDeployment) {
			withdraw(md, "node.cluster.x-k8s.io/goes", taint.AlwaysAnnotation)
		})
	})
	expectEqual(p.alone, w, "the owner drops a label and a taint")
	w.expectWithdrawn("node.cluster.x-k8s.io/goes", taint.AlwaysAnnotation)

	before, from, ofAlone := w.identities(), len(recorder.All()), p.alone.identities()
	p.alone.lose(func() { p.alone.wipe() })
	w.lose(func() {
		w.Expect(w.managers.Stop()).To(Succeed())
		w.Expect(w.StopHeirloom()).To(Succeed())
		w.swap(other)
	})
	expectEqual(p.alone, w, "backup and restore")
	w.expectSame(before, recorder.All()[from:])
	p.alone.Expect(p.alone.identities()).To(Equal(ofAlone))
	w.expectStill()

	p.do(func(w *world) {
		w.change(func(md *clusterv1.MachineDeployment) { withdraw(md, "node.cluster.x-k8s.io/later", "later") })
	})
	w.expectWithdrawn("node.cluster.x-k8s.io/later", "later")
	p.alone.settle()
	for _, machine := range p.alone.list(p.alone.Client, machineKind) {
		if workers(&machine) {
			w.Expect(machine.GetLabels()).To(HaveKey("node.cluster.x-k8s.io/later"), "what Cluster API does not take away by itself after a restore")
		}
	}
}

// workers tells what is the MachineDeployment's.
func workers(object client.Object) bool { return strings.HasPrefix(object.GetName(), "workers") }

// withdraw takes a label and an annotation out of the template.
func withdraw(md *clusterv1.MachineDeployment, label, annotation string) {
	delete(md.Spec.Template.Labels, label)
	delete(md.Spec.Template.Annotations, annotation)
}

// expectWithdrawn waits until they are gone from all that is the MachineDeployment's, and the taint with them.
func (w *world) expectWithdrawn(label, annotation string) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		for _, kind := range chain() {
			for _, object := range w.list(w.Client, kind) {
				if workers(&object) {
					g.Expect(text(object.Object["metadata"])).NotTo(ContainSubstring(label), "%s %s", kind.Kind, object.GetName())
					g.Expect(object.GetAnnotations()).NotTo(HaveKey(annotation), "%s %s", kind.Kind, object.GetName())
				}
			}
		}
		for _, node := range w.nodes(g) {
			if workers(&node) {
				g.Expect(node.Labels).NotTo(HaveKey(label), node.Name)
				g.Expect(annotation == taint.AlwaysAnnotation && strings.Contains(taint.FormatList(node.Spec.Taints), "annotated-always")).To(BeFalse(), node.Name)
			}
		}
	}).WithTimeout(patience).Should(Succeed())
}

// identities are what would change if a Machine were replaced: the Machines' names and the Nodes' UIDs.
func (w *world) identities() []string {
	var all []string
	for _, machine := range w.list(w.Client, machineKind) {
		all = append(all, machine.GetName())
	}
	for _, node := range w.nodes(w) {
		all = append(all, identity(node))
	}
	slices.Sort(all)
	return all
}

func identity(node corev1.Node) string { return node.Name + " " + string(node.UID) }

// expectSame expects that no Machine was replaced or created by Cluster API, and that of each Node nothing changed that is
// inherited.
func (w *world) expectSame(identities []string, versions []controlplane.Version) {
	w.t.Helper()
	w.Expect(w.identities()).To(Equal(identities))
	for _, node := range w.nodes(w) {
		w.Expect(len(lives(versions, node.Name))).To(BeNumerically("<=", 1), "%s: %+v", node.Name, lives(versions, node.Name))
	}
}

// errorsIn returns the lines of a log that klog marks as errors.
func errorsIn(log string) []string {
	return slices.DeleteFunc(strings.Split(log, "\n"), func(line string) bool { return !strings.HasPrefix(line, "E") })
}
