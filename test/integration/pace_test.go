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

// A taint that evicts Pods reaches existing Nodes one after the other, new Nodes at once, and no further Node when the owner
// has changed its mind. Neither does it come with a write of somebody else.
func TestThePaceOfTaintsThatEvict(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, both)
	f := s.settle(s.own("pace"), stage.Declared{Annotations: map[string]string{taint.AlwaysAnnotation: "gpu=true:NoSchedule"}})
	var nodes []*corev1.Node
	add := func(name string) *corev1.Node {
		name = f.m.Name + "-" + name
		s.create(stage.Machine(f.ms, name))
		node := stage.Node(name)
		s.create(node)
		s.eventually(node, func(g Gomega) {
			g.Expect(taint.FormatList(node.Spec.Taints)).To(ContainSubstring("gpu=true:NoSchedule"))
		})
		return node
	}
	for i := range 4 {
		nodes = append(nodes, add(fmt.Sprint("old-", i)))
	}
	declare := func(list string) {
		s.get(f.md)
		s.update(f.md, func() { f.md.Spec.Template.Annotations[taint.AlwaysAnnotation] = list })
	}
	evicting := func(g Gomega) int {
		count := 0
		for _, node := range nodes {
			g.Expect(s.Client.Get(s.ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
			if taint.Find(node.Spec.Taints, taint.ID{Key: "drain", Effect: corev1.TaintEffectNoExecute}) >= 0 {
				count++
			}
		}
		return count
	}

	declare("gpu=true:NoSchedule,drain=now:NoExecute")
	s.Eventually(evicting).WithTimeout(patience).Should(Equal(1))
	for _, node := range nodes {
		s.get(node)
		s.update(node, func() { node.Labels["touched"] = "yes" })
	}
	s.Consistently(evicting).WithTimeout(2*time.Second).Should(Equal(1), "nobody's write brings it")
	fresh := add("new")
	s.eventually(fresh, func(g Gomega) {
		g.Expect(taint.FormatList(fresh.Spec.Taints)).To(ContainSubstring("drain=now:NoExecute"), "a new Node does not wait")
	})
	s.Eventually(evicting).WithTimeout(patience).Should(Equal(2), "every five seconds one more")

	events := &eventsv1.EventList{}
	s.Expect(s.Client.List(s.ctx, events, client.InNamespace(f.m.Namespace))).To(Succeed())
	s.Expect(events.Items).To(ContainElement(And(
		HaveField("Reason", "NoExecuteTaintsRollingOut"), HaveField("Regarding.Kind", "MachineDeployment"),
		HaveField("Note", ContainSubstring("wait for their turn")),
	)))

	declare("gpu=true:NoSchedule")
	s.Eventually(evicting).WithTimeout(patience).Should(BeZero())
	s.Consistently(evicting).WithTimeout(6*time.Second).Should(BeZero(), "nobody waits for it any more")
	for _, node := range append(nodes, fresh) {
		s.eventually(node, func(g Gomega) {
			g.Expect(taint.FormatList(node.Spec.Taints)).To(ContainSubstring("gpu=true:NoSchedule"))
			g.Expect(taint.FormatList(node.Spec.Taints)).NotTo(ContainSubstring("drain"))
			g.Expect(node.Annotations).To(HaveKey(clusterv1.TaintsFromMachineAnnotation))
		})
	}
}
