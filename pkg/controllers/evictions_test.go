// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

const all, withoutDrain, noneWaits = "drain:NoExecute,gpu:NoSchedule", "gpu:NoSchedule", "waiting_nodes 0"

// evicting returns a Machine in use that declares a NoExecute taint for its Node.
func evicting(name, owner string) *clusterv1.Machine {
	m := nodeMachine(name)
	m.OwnerReferences, m.Status.NodeRef.Name = ownedBy(name, owner).OwnerReferences, name
	m.Spec.Taints = append(m.Spec.Taints, clusterv1.MachineTaint{Key: "drain", Effect: "NoExecute", Propagation: "Always"})
	return m
}

// evictions returns a loop that taints one Node of a Cluster per minute, and creates Nodes n0, n1 and so on, with their Machines of
// MachineSet ms.
func evictions(t *testing.T, nodes int, objects ...client.Object) *loop {
	t.Helper()
	for i := range nodes {
		name := fmt.Sprint("n", i)
		objects = append(objects, evicting(name, "MachineSet/ms"), node(name))
	}
	l := newLoop(t, append(objects, theCluster())...)
	l.NoExecute.Rate = 1
	return l
}

// after reconciles a Node, and returns its taints and the time until the next look.
func (l *loop) after(name string) (string, time.Duration) {
	l.t.Helper()
	again, err := l.lookAt("c", name)
	l.Expect(err).NotTo(HaveOccurred())
	return l.taintsOf(name), again
}

// looks reconciles a Node, and expects its taints and the time until the next look.
func (l *loop) looks(name, taints string, again time.Duration) {
	l.t.Helper()
	is, next := l.after(name)
	l.Expect([]any{is, next}).To(Equal([]any{taints, again}))
}

// drained reconciles Nodes, and returns how many of them have a NoExecute taint.
func (l *loop) drained(nodes ...string) (drained int) {
	l.t.Helper()
	for _, name := range nodes {
		if taints, _ := l.after(name); taints == all || taints == "drain:NoExecute" {
			drained++
		}
	}
	return drained
}

// Nodes in use get a NoExecute taint one after the other, and other taints at once. Events on the object that operators edit report the
// first Node that waits and the end of the roll-out.
func TestNoExecuteTaintsReachNodesOneAfterAnother(t *testing.T) {
	inUse(t, func(t *testing.T) {
		md := machineDeployment()
		md.Spec.Template.Spec.Taints = evicting("", "MachineSet/ms").Spec.Taints
		l := evictions(t, 3, md, machineSet())
		l.looks("n0", all, 0)
		l.told()
		const first = "Normal NoExecuteTaintsRollingOut MachineDeployment/md: NoExecute taints evict Pods, so Nodes wait for their " +
			"turn; limit reached in Cluster ns/c"
		for i, waiting := range []string{"n1", "n2"} {
			l.looks(waiting, withoutDrain, time.Minute)
			l.looks(waiting, withoutDrain, time.Minute)
			l.counted(fmt.Sprint("waiting_nodes ", i+1))
			l.told(first)
		}
		l.notCounted("unprotected_nodes") // a taint that waits is not a missing taint
		<-time.After(time.Minute)
		l.Expect(l.drained("n0", "n1", "n2")).To(Equal(2))
		l.told()
		<-time.After(time.Minute)
		l.Expect(l.drained("n2")).To(Equal(1))
		l.told("Normal NoExecuteTaintsRolledOut MachineDeployment/md: All Nodes of Cluster ns/c that waited for NoExecute taints have them")
		l.counted(noneWaits)
	})
}

// A Node leaves the count when it no longer waits, because its owner has changed or the Node is gone. No Event reports the end of a roll-out.
func TestNodesLeaveTheCountOfWaitingNodes(t *testing.T) {
	l := evictions(t, 3, machineDeployment(), machineSet())
	l.drained("n0", "n1", "n2")
	l.counted("waiting_nodes 2")
	l.events.take()
	l.delete(node("n2"))
	l.Expect(l.seeNode("n2")).To(Succeed())
	l.counted("waiting_nodes 1")
	m := evicting("n1", "MachineSet/ms")
	l.change(m, func() { m.Spec.Taints = m.Spec.Taints[:1] })
	l.Expect(l.seeNode("n1")).To(Succeed())
	l.counted(noneWaits)
	l.told()
}

// A write that the API server has refused costs no turn: this Node or another Node has its turn at once.
func TestARefusedWriteCostsNoTurn(t *testing.T) {
	for _, refusal := range []error{apierrors.NewForbidden(schema.GroupResource{}, "n0", errors.New("no rights")), apierrors.NewConflict(schema.GroupResource{}, "n0", errors.New("changed"))} {
		l := evictions(t, 1, machineDeployment(), machineSet())
		l.refuse = refusal
		l.refusedNode("n0", refusal)
		l.refuse = nil
		l.Expect(l.drained("n0")).To(Equal(1))
		l.counted(noneWaits)
	}
}

// A write without an answer costs its turn, because the API server may have carried it out.
func TestAnUnansweredWriteCostsATurn(t *testing.T) {
	for _, lost := range []error{apierrors.NewTimeoutError("no answer", 0), syscall.ECONNRESET, apierrors.NewInternalError(errors.New("etcd: request timed out"))} {
		inUse(t, func(t *testing.T) {
			l := evictions(t, 1, machineDeployment(), machineSet())
			l.refuse = lost
			l.Expect(l.seeNode("n0")).NotTo(Succeed())
			l.refuse = nil
			<-time.After(10 * time.Second)
			l.looks("n0", withoutDrain, 50*time.Second)
		})
	}
}

// The Nodes of a set share a pace, also without Machines. Events go to the object that declares the taint.
func TestNodesOfAPoolShareAPace(t *testing.T) {
	mp := machinePool()
	mp.Spec.ProviderIDList = []string{"id-a", "id-b"}
	mp.Spec.Template.Annotations = map[string]string{taint.AlwaysAnnotation: "drain:NoExecute"}
	l := newLoop(t, theCluster(), mp, node("a"), node("b"))
	l.NoExecute.Rate = 60
	l.Expect(l.drained("a", "b")).To(Equal(1))
	l.Expect(l.events.take()).To(ConsistOf(And(
		HavePrefix("Normal NoExecuteTaintsRollingOut MachinePool/mp: "), HaveSuffix("limit reached in MachinePool ns/mp"))))
}

// Events about waiting Nodes are on the declaring object. Readers of a ClusterClass in another namespace must not learn the names in this
// Cluster, so the Events are then on the Machine.
func TestAMachineStandsForAClassOfAnotherNamespace(t *testing.T) {
	for namespace, about := range map[string]string{"ns": "ClusterClass/class", "classes": "Machine/n1"} {
		class, cluster := clusterClass(), managedCluster()
		class.Namespace, cluster.Spec.Topology.ClassRef.Namespace = namespace, namespace
		class.Spec.Workers.MachineDeployments[0].Metadata.Annotations = map[string]string{taint.AlwaysAnnotation: "drain:NoExecute"}
		l := newLoop(t, cluster, class, managed(machineDeployment()), machineSet(), machine("n0", "MachineSet/ms"), machine("n1", "MachineSet/ms"), node("n0"), node("n1"))
		l.NoExecute.Rate = 1
		l.Expect(l.drained("n0", "n1")).To(Equal(1))
		l.told("Normal NoExecuteTaintsRollingOut " + about + ": ")
	}
}
