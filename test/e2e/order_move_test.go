// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// moveAndRestore moves the Clusters to another management cluster with clusterctl, and brings them back to the first one out of
// a backup, after the other is lost. No Machine is replaced and no Node changes; what the owner drops then leaves everybody. A
// world without Heirloom, which has not moved and is restored where it was, ends the same.
func (p *pair) moveAndRestore(other *management) {
	w := p.together
	w.eventuallyEachNode(func(g Gomega, node corev1.Node) { tracked(g, node, "", alwaysAnnotated) })
	recorder := w.recordNodes()
	p.do((*world).dropShim)
	p.expectEqual("references to what is long gone are dropped")
	before, owned, log := w.identities(), w.owned(), filepath.Join(w.dir, "heirloom.log")
	logged, from := len(w.read(log)), len(recorder.All())
	w.move(other)
	p.expectEqual("clusterctl move")
	w.expectSame(before, recorder.All()[from:])
	w.Expect(w.owned()).To(Equal(owned), "what was Heirloom's there is Heirloom's here")
	w.Expect(errorsIn(w.read(log)[logged:])).To(BeEmpty(), "Heirloom has nothing to do any more where the Clusters were")

	p.step("the owner drops a label and a taint", func(w *world) {
		w.change(func(md *clusterv1.MachineDeployment) {
			withdraw(md, "node.cluster.x-k8s.io/goes", taint.AlwaysAnnotation)
		})
	})
	w.expectWithdrawn("node.cluster.x-k8s.io/goes", taint.AlwaysAnnotation)
	p.expectSameCreations()

	before, ofAlone := w.identities(), p.alone.identities()
	from = len(recorder.All())
	p.do(func(each *world) {
		lost := each.wipe
		if each == w {
			lost = func() {
				w.Expect(w.managers.Stop()).To(Succeed())
				w.Expect(w.StopHeirloom()).To(Succeed())
				w.swap(other)
			}
		}
		each.lose(lost)
		each.expectRebuilt()
	})
	p.expectEqual("backup and restore")
	w.expectSame(before, recorder.All()[from:])
	p.alone.Expect(p.alone.identities()).To(Equal(ofAlone))
	w.expectStill()
}

// dropRestored has the owner drop what came out of the backup.
func (p *pair) dropRestored() {
	w := p.together
	p.do(func(w *world) {
		w.change(func(md *clusterv1.MachineDeployment) { withdraw(md, "node.cluster.x-k8s.io/restored", "restored") })
	})
	w.expectWithdrawn("node.cluster.x-k8s.io/restored", "restored")
	settle(p.alone)
	for _, machine := range p.alone.machines(plain) {
		if workers(&machine) {
			w.Expect(machine.GetLabels()).To(HaveKey("node.cluster.x-k8s.io/restored"), "what Cluster API does not take away by itself after a restore")
		}
	}
}

// recordNodes records every version of every Node for as long as the world is there.
func (w *world) recordNodes() *controlplane.Recorder {
	w.t.Helper()
	recorder, err := controlplane.RecordVersions(w.ctx, w.workload.AdminConfig(), corev1.SchemeGroupVersion.WithResource("nodes"))
	w.Expect(err).NotTo(HaveOccurred())
	w.whole.Cleanup(func() { w.Expect(recorder.Stop()).To(Succeed()) })
	return recorder
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
	}).Should(Succeed())
}

// identities are what would change if a Machine were replaced: the Machines' names and the Nodes' UIDs.
func (w *world) identities() []string {
	var all []string
	for _, machine := range w.list(w.Client, machineKind) {
		all = append(all, machine.GetName())
	}
	for _, node := range w.allNodes() {
		all = append(all, identity(node))
	}
	slices.Sort(all)
	return all
}

// allNodes are the Nodes of all Clusters.
func (w *world) allNodes() []corev1.Node {
	list := &corev1.NodeList{}
	w.Expect(w.workload.Client.List(w.ctx, list)).To(Succeed())
	return list.Items
}

func identity(node corev1.Node) string { return node.Name + " " + string(node.UID) }

// expectSame expects that no Machine was replaced or created by Cluster API, and that of each Node nothing changed that is
// inherited.
func (w *world) expectSame(identities []string, versions []controlplane.Version) {
	w.t.Helper()
	w.Expect(w.identities()).To(Equal(identities))
	for _, node := range w.allNodes() {
		w.Expect(len(contents(versions, node.Name))).To(BeNumerically("<=", 1), "%s: %+v", node.Name, contents(versions, node.Name))
	}
}

// errorsIn returns the lines of a log that klog marks as errors.
func errorsIn(log string) []string {
	return slices.DeleteFunc(strings.Split(log, "\n"), func(line string) bool { return !strings.HasPrefix(line, "E") })
}
