// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// evicting is a Machine that declares a taint for its Node which evicts Pods.
func evicting(name, owner string) *clusterv1.Machine {
	m := nodeMachine(name)
	m.OwnerReferences = ownedBy(name, owner).OwnerReferences
	m.Spec.Taints = append(m.Spec.Taints, clusterv1.MachineTaint{Key: "drain", Effect: "NoExecute", Propagation: "Always"})
	return m
}

// evictions are a loop that lets one Node a minute pass, and so many Nodes named n0, n1 and so on, with their Machines.
func evictions(t *testing.T, owner string, nodes int, objects ...client.Object) *loop {
	t.Helper()
	for i := range nodes {
		name := fmt.Sprint("n", i)
		objects = append(objects, evicting(name, owner), node(name))
	}
	l := newLoop(t, append(objects, theCluster())...)
	l.NoExecuteRate = 1
	return l
}

// taintsOf looks at a Node and returns its taints after that, and when it is to be looked at again.
func (l *loop) taintsOf(name string) (string, time.Duration) {
	l.t.Helper()
	again, err := l.seeNode(client.ObjectKey{}, name)
	l.Expect(err).NotTo(HaveOccurred())
	n := node(name)
	l.stored(n)
	return taint.FormatList(n.Spec.Taints), again.RequeueAfter
}

const all, withoutDrain = "drain:NoExecute,gpu:NoSchedule", "gpu:NoSchedule"

// Existing Nodes get a taint that evicts Pods one after the other. What does not evict comes at once. How far it is can be read
// in Events on what an operator edits.
func TestTaintsThatEvictReachNodesOneAfterTheOther(t *testing.T) {
	later(t, func(t *testing.T) {
		l := evictions(t, "MachineSet/ms", 3, machineDeployment(), machineSet())
		taints, again := l.taintsOf("n0")
		l.Expect(taints).To(Equal(all))
		l.Expect(again).To(BeZero())
		l.told()

		for i, waiting := range []string{"n1", "n2"} {
			for range 2 {
				taints, again = l.taintsOf(waiting)
				l.Expect(taints).To(Equal(withoutDrain))
				l.Expect(again).To(Equal(time.Minute))
			}
			l.counted(fmt.Sprint("no_execute_waiting_nodes ", i+1))
		}
		const first = "Normal NoExecuteTaintsRollingOut MachineDeployment/md: Taints [drain:NoExecute] evict Pods: 1 Nodes have them, " +
			"1 wait for their turn (--no-execute-rate): no more for now in Cluster ns/c"
		l.told(first, first)

		taints, again = l.taintsOf("n0")
		l.Expect(taints).To(Equal(all))
		l.Expect(again).To(BeZero())
	})
}

// In its time, each Node has its turn; with the last one, operators can read that all have the taint.
func TestEachNodeHasItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := evictions(t, "MachineSet/ms", 3, machineDeployment(), machineSet())
		for i := range 3 {
			n := node(fmt.Sprint("n", i))
			l.change(n, func() {
				n.Annotations = map[string]string{clusterv1.TaintsFromMachineAnnotation: ""}
				n.Labels = map[string]string{inherit.RecordLabel: "x"}
			}) // it is not new
			l.taintsOf(n.Name)
		}
		for _, waiting := range []string{"n1", "n2"} {
			taints, again := l.taintsOf(waiting)
			l.Expect(taints).To(Equal(withoutDrain))
			<-time.After(again)
			l.events.take()
			taints, _ = l.taintsOf(waiting)
			l.Expect(taints).To(Equal(all))
		}
		l.told("Normal NoExecuteTaintsRolledOut MachineDeployment/md: Taints [drain:NoExecute] are on all 3 Nodes that had to wait for them")
		l.counted("no_execute_waiting_nodes 0")
	})
}

// A Node that waits no more is out of the count: its owner has changed its mind, or it is gone.
func TestNodesThatWaitNoMore(t *testing.T) {
	l := evictions(t, "MachineSet/ms", 3, machineDeployment(), machineSet())
	for i := range 3 {
		l.taintsOf(fmt.Sprint("n", i))
	}
	l.counted("no_execute_waiting_nodes 2")
	m := evicting("n1", "MachineSet/ms")
	l.change(m, func() { m.Spec.Taints = nil })
	l.taintsOf("n1")
	l.counted("no_execute_waiting_nodes 1")
	l.Expect(l.server.Delete(t.Context(), node("n2"))).To(Succeed())
	l.Expect(l.seeOwn("n2")).To(Succeed())
	l.counted("no_execute_waiting_nodes 0")
}

// Whose turn it was may try again when the write has failed: it does not wait for another turn.
func TestAWriteThatFailedKeepsItsTurn(t *testing.T) {
	l := evictions(t, "MachineSet/ms", 1, machineDeployment(), machineSet())
	l.refuse = errors.New("no rights")
	l.Expect(l.seeOwn("n0")).NotTo(Succeed())
	l.refuse = nil
	taints, _ := l.taintsOf("n0")
	l.Expect(taints).To(Equal(all))
}

// A Cluster's Nodes share a pace. Operators read of it on what is at the top of a Machine's chain.
func TestWhoSharesAPace(t *testing.T) {
	standing := machineSet()
	standing.OwnerReferences = nil
	for _, tc := range []struct {
		name, owner, group string
		objects            []client.Object
	}{
		{"a MachineDeployment", "MachineSet/ms", "MachineDeployment/md", []client.Object{machineDeployment(), machineSet()}},
		{"a MachineSet that stands alone", "MachineSet/ms", "MachineSet/ms", []client.Object{standing}},
		{"a control plane", "FakeControlPlane/cp", "FakeControlPlane/cp", []client.Object{controlPlane()}},
		{"a MachinePool with Machines", "MachinePool/mp", "MachinePool/mp", []client.Object{machinePool()}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			other := evicting("other", "MachineSet/other")
			l := evictions(t, tc.owner, 2, append(tc.objects, other, node("other"))...)
			l.taintsOf("n0")
			taints, _ := l.taintsOf("n1")
			l.Expect(taints).To(Equal(withoutDrain))
			l.told("Normal NoExecuteTaintsRollingOut " + tc.group + ": ")
			taints, _ = l.taintsOf("other")
			l.Expect(taints).To(Equal(withoutDrain), "nor is it the turn of a Machine whose owner is not there")
		})
	}
}

func TestTheNodesOfAMachinePoolShareAPace(t *testing.T) {
	later(t, func(t *testing.T) {
		mp := machinePool()
		mp.Spec.ProviderIDList = []string{"id-a", "id-b"}
		mp.Spec.Template.Annotations = map[string]string{taint.AlwaysAnnotation: "drain:NoExecute"}
		l := newLoop(t, theCluster(), mp, node("a"), node("b"))
		l.NoExecuteRate = 1
		first, _ := l.taintsOf("a")
		second, again := l.taintsOf("b")
		l.Expect([]string{first, second}).To(Equal([]string{"drain:NoExecute", ""}))
		l.Expect(again).To(Equal(time.Minute))
		l.told("Normal NoExecuteTaintsRollingOut MachinePool/mp: ")
	})
}

// Not held back is what evicts nobody.
func TestWhoDoesNotWait(t *testing.T) {
	for name, change := range map[string]func(*loop, *corev1.Node){
		"without a rate, nobody": func(l *loop, _ *corev1.Node) { l.NoExecuteRate = 0 },
		"a Node that is new":     func(_ *loop, n *corev1.Node) { n.CreationTimestamp = metav1.Now() },
		"a Node from which somebody took the taint": func(_ *loop, n *corev1.Node) {
			n.Annotations = map[string]string{clusterv1.TaintsFromMachineAnnotation: all}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := evictions(t, "MachineSet/ms", 1, machineDeployment(), machineSet(), evicting("late", "MachineSet/ms"))
			n := node("late")
			change(l, n)
			l.Expect(l.server.Create(t.Context(), n)).To(Succeed())
			l.taintsOf("n0")
			taints, again := l.taintsOf("late")
			l.Expect(taints).To(Equal(all))
			l.Expect(again).To(BeZero())
		})
	}
}

func TestAGroupThatCannotBeReadIsTriedAgain(t *testing.T) {
	l := evictions(t, "MachineSet/ms", 1, machineDeployment(), machineSet())
	for _, kind := range []string{"MachineSet", "MachineDeployment"} {
		l.broken.set(kind, errors.New("no cache"))
		l.Expect(l.seeOwn("n0")).To(MatchError(l.broken.of(kind)))
		l.broken.clear(kind)
	}
	l.wrote()
}
