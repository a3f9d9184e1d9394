// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// member makes a Machine of the MachineSet with a Node that is in use: it has inherited before.
func (s *scene) member(ms *clusterv1.MachineSet, name, has string) *corev1.Node {
	s.t.Helper()
	s.create(stage.Machine(ms, name))
	node := stage.Node(name)
	s.create(node)
	s.eventually(node, func(g Gomega) {
		g.Expect(node.Annotations).To(HaveKey(clusterv1.TaintsFromMachineAnnotation))
		g.Expect(taint.FormatList(node.Spec.Taints)).To(ContainSubstring(has))
	})
	return node
}

// drained counts the Nodes that have the taint drain:NoExecute.
func (s *scene) drained(nodes ...*corev1.Node) func(g Gomega) int {
	return func(g Gomega) int {
		count := 0
		for _, node := range nodes {
			g.Expect(s.Client.Get(s.ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
			if taint.Find(node.Spec.Taints, taint.ID{Key: "drain", Effect: corev1.TaintEffectNoExecute}) >= 0 {
				count++
			}
		}
		return count
	}
}

func (s *scene) expectRollOut(namespace, kind, heldBy string) {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		events := &eventsv1.EventList{}
		g.Expect(s.Client.List(s.ctx, events, client.InNamespace(namespace))).To(Succeed())
		g.Expect(events.Items).To(ContainElement(And(
			HaveField("Reason", "NoExecuteTaintsRollingOut"), HaveField("Regarding.Kind", kind),
			HaveField("Note", And(ContainSubstring("wait for their turn"), ContainSubstring(heldBy))),
		)))
	}).WithTimeout(patience).Should(Succeed())
}

// A taint that evicts Pods reaches existing Nodes one after the other, new Nodes at once, and no further Node when the owner
// has changed its mind. Neither does it come with a write of somebody else. However fast the Cluster goes, a set keeps nine
// tenths of its Nodes for a minute.
func TestThePaceOfTaintsThatEvict(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, both)
	const plain, evicts = "gpu=true:NoSchedule", "gpu=true:NoSchedule,drain=now:NoExecute"
	f := s.settle(s.own("pace"), stage.Declared{Annotations: map[string]string{taint.AlwaysAnnotation: plain}})
	var nodes []*corev1.Node
	for i := range 4 {
		nodes = append(nodes, s.member(f.ms, fmt.Sprint(f.m.Name, "-old-", i), plain))
	}
	declare := func(list string) {
		s.get(f.md)
		s.update(f.md, func() { f.md.Spec.Template.Annotations[taint.AlwaysAnnotation] = list })
	}

	declare(evicts)
	s.Eventually(s.drained(nodes...)).WithTimeout(patience).Should(Equal(1))
	for _, node := range nodes {
		s.get(node)
		s.update(node, func() { node.Labels["touched"] = "yes" })
	}
	s.Consistently(s.drained(nodes...)).WithTimeout(2*time.Second).Should(Equal(1), "nobody's write brings it")
	fresh := s.member(f.ms, f.m.Name+"-new", "drain=now:NoExecute") // a new Node does not wait
	s.expectRollOut(f.m.Namespace, "MachineDeployment", "MachineDeployment "+f.m.Namespace+"/"+f.md.Name)

	// Another set of the same Cluster has its turn before the first has given another Node.
	md := stage.MachineDeployment(f.cluster, f.md.Name+"-other", stage.Declared{Annotations: map[string]string{taint.AlwaysAnnotation: plain}})
	s.create(md)
	ms := stage.MachineSet(md, md.Name)
	s.create(ms)
	other := s.member(ms, md.Name, plain)
	s.update(md, func() { md.Spec.Template.Annotations[taint.AlwaysAnnotation] = evicts })
	s.Eventually(s.drained(other)).WithTimeout(patience).Should(Equal(1), "after five seconds at most")

	waiting := func() float64 { return s.samples()["heirloom_no_execute_waiting_nodes"] }
	s.Expect(waiting()).To(BeNumerically(">=", 2), "a set keeps its Nodes for a minute")
	declare(plain)
	s.Eventually(s.drained(nodes...)).WithTimeout(patience).Should(BeZero())
	s.Eventually(waiting).WithTimeout(patience).WithPolling(polling).Should(BeZero(), "nobody waits for it any more")
	s.Consistently(s.drained(nodes...)).WithTimeout(6 * time.Second).Should(BeZero())
	for _, node := range append(nodes, fresh) {
		s.eventually(node, func(g Gomega) {
			g.Expect(taint.FormatList(node.Spec.Taints)).To(ContainSubstring(plain))
			g.Expect(taint.FormatList(node.Spec.Taints)).NotTo(ContainSubstring("drain"))
			g.Expect(node.Annotations).To(HaveKey(clusterv1.TaintsFromMachineAnnotation))
		})
	}
}
