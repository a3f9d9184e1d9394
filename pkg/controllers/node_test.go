// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

const pool, worker = "node.cluster.x-k8s.io/pool", "node-role.kubernetes.io/worker"

// inheritedByNode is the body of a write that brings label pool=a and a taint gpu to a Node, at the version of a new Node.
const inheritedByNode = `{"metadata":{"annotations":{"cluster.x-k8s.io/labels-from-machine":"node.cluster.x-k8s.io/pool",` +
	`"cluster.x-k8s.io/taints-from-machine":"gpu:NoSchedule","heirloom.dev/record-from-machine":";gpu:NoSchedule"},` +
	`"labels":{"heirloom.node-restriction.kubernetes.io/record":"541697abac0b27248ae811f09f08ea6d","node.cluster.x-k8s.io/pool":"a"}},"spec":{"taints":[{"effect":"NoSchedule","key":"gpu"}]}}`

// nodeMachine is a Machine with something for its Node, and its owner.
func nodeMachine(name string) *clusterv1.Machine {
	m := machine(name, "MachineSet/ms")
	m.Labels[pool] = "a"
	m.Spec.Taints = []clusterv1.MachineTaint{{Key: "gpu", Effect: "NoSchedule", Propagation: "Always"}}
	return m
}

// seeOwn looks at a Node of the management cluster.
func (l *loop) seeOwn(name string) error {
	l.t.Helper()
	result, err := l.seeNode(client.ObjectKey{}, name)
	l.Expect(result).To(BeZero())
	return err
}

// seeIn looks at a Node of a workload cluster.
func (l *loop) seeIn(cluster, name string) error {
	l.t.Helper()
	result, err := l.seeNode(key(cluster), name)
	l.Expect(result).To(BeZero())
	return err
}

// A Node of the management cluster inherits in one patch, which holds only for the version that was seen, because taints are
// one list.
func TestANodeInheritsFromItsMachine(t *testing.T) {
	l := newLoop(t, theCluster(), machineSet(), nodeMachine("m"), node("m"))
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.wrote("patches Node /m@999 " + inheritedByNode)
	l.counted(
		`resync_writes_total{kind="Node",reason="ahead",result="applied"} 1`,
		`inherited_keys_total{by="resync",change="injected",kind="Node",what="label"} 1`,
		`inherited_keys_total{by="resync",change="injected",kind="Node",what="taint"} 1`,
	)
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.wrote()
	l.told()
	l.Expect(l.live.take()).To(BeEmpty())
}

// Node names repeat between clusters. Each Node inherits from a Machine of its own Cluster, and is written there.
func TestANodeOfAWorkloadClusterInheritsFromItsOwnCluster(t *testing.T) {
	m, other := nodeMachine("same"), nodeMachine("same-name")
	m.Status.NodeRef.Name, other.Status.NodeRef.Name = "same", "same"
	m.Spec.ProviderID, other.Spec.ProviderID = "", ""
	other.Spec.ClusterName, other.Labels[pool] = "d", "b"
	l := newLoop(t, theCluster(), &clusterv1.Cluster{ObjectMeta: named("d")}, m, other)
	for _, cluster := range []string{"c", "d"} {
		l.connect(cluster, node("same"))
	}
	l.Expect(l.seeIn("c", "same")).To(Succeed())
	l.wrote("in c: patches Node /same@999 " + inheritedByNode)
	l.Expect(l.seeIn("d", "same")).To(Succeed())
	l.Expect(l.writes.take()).To(ConsistOf(And(HavePrefix("in d: patches Node /same@999 "), ContainSubstring(`"node.cluster.x-k8s.io/pool":"b"}`))))
	for _, cluster := range []string{"c", "d"} {
		l.Expect(l.seeIn(cluster, "same")).To(Succeed())
	}
	l.wrote()
}

// Without a Machine, a Node is one of the MachinePool that names it.
func TestANodeInheritsFromAMachinePool(t *testing.T) {
	l := newLoop(t, theCluster(), machinePool(pool+"=a"), node("pooled"))
	l.Expect(l.seeOwn("pooled")).To(Succeed())
	l.Expect(l.stored(node("pooled")).GetLabels()).To(HaveKeyWithValue(pool, "a"))
}

// What a Machine no longer declares goes from its Node; what others have set there stays.
func TestANodeLosesWhatItsMachineLoses(t *testing.T) {
	m, n := nodeMachine("m"), node("m")
	l := newLoop(t, theCluster(), machineSet(), m, n)
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.change(n, func() {
		n.Labels["mine"] = "yes"
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoSchedule})
	})
	l.change(m, func() { m.Labels, m.Spec.Taints = map[string]string{clusterv1.ClusterNameLabel: "c"}, nil })
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.stored(n)
	l.Expect(n.Labels).To(And(HaveLen(2), HaveKeyWithValue("mine", "yes"), HaveKey(inherit.RecordLabel)))
	l.Expect(taint.FormatList(n.Spec.Taints)).To(Equal("mine:NoSchedule"))
	l.counted(
		`inherited_keys_total{by="resync",change="removed",kind="Node",what="label"} 1`,
		`inherited_keys_total{by="resync",change="removed",kind="Node",what="taint"} 1`,
	)
	l.told()
}

func TestANodeThatIsLeftAloneIsNotWritten(t *testing.T) {
	gone := metav1.Now()
	for name, leave := range map[string]func(*clusterv1.Cluster, *clusterv1.Machine, *corev1.Node){
		"its Machine is paused": func(_ *clusterv1.Cluster, m *clusterv1.Machine, _ *corev1.Node) {
			m.Annotations = pairs(clusterv1.PausedAnnotation)
		},
		"its Machine is opted out": func(_ *clusterv1.Cluster, m *clusterv1.Machine, _ *corev1.Node) { m.Labels[inherit.IgnoreLabel] = "" },
		"its Cluster is paused":    func(c *clusterv1.Cluster, _ *clusterv1.Machine, _ *corev1.Node) { c.Spec.Paused = new(true) },
		"its Cluster is opted out": func(c *clusterv1.Cluster, _ *clusterv1.Machine, _ *corev1.Node) {
			c.Labels = pairs(inherit.IgnoreLabel)
		},
		"it is being deleted": func(_ *clusterv1.Cluster, _ *clusterv1.Machine, n *corev1.Node) {
			n.DeletionTimestamp, n.Finalizers = &gone, []string{"provider/finalizer"}
		},
		"it has no Machine":                    func(_ *clusterv1.Cluster, m *clusterv1.Machine, _ *corev1.Node) { m.Spec.ProviderID = "another" },
		"its Machine is another Node":          func(_ *clusterv1.Cluster, m *clusterv1.Machine, _ *corev1.Node) { m.Status.NodeRef.Name = "another" },
		"it is one of no MachinePool, neither": func(_ *clusterv1.Cluster, _ *clusterv1.Machine, n *corev1.Node) { n.Spec.ProviderID = "" },
	} {
		t.Run(name, func(t *testing.T) {
			cluster, m, n := theCluster(), nodeMachine("m"), node("m")
			leave(cluster, m, n)
			l := newLoop(t, cluster, machineSet(), m, n)
			l.Expect(l.seeOwn("m")).To(Succeed())
			l.wrote()
		})
	}
}

// The Node of a Machine that is being deleted keeps what it has until it is gone.
func TestANodeInheritsWhileItsMachineIsBeingDeleted(t *testing.T) {
	m := nodeMachine("m")
	m.DeletionTimestamp, m.Finalizers = &metav1.Time{Time: m.CreationTimestamp.Time}, []string{"machine.cluster.x-k8s.io"}
	l := newLoop(t, theCluster(), machineSet(), m, node("m"))
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.wrote("patches Node /m@999 " + inheritedByNode)
}

func TestANodeThatCannotBeReached(t *testing.T) {
	l := newLoop(t, theCluster(), nodeMachine("m"), node("m"))
	l.Expect(l.seeIn("c", "m")).To(Succeed(), "its cluster is not connected: it is looked at once it is")
	l.workloads.broken = errors.New("no way")
	l.Expect(l.seeIn("c", "m")).To(MatchError(ContainSubstring("reaching the workload cluster ns/c: no way")))
	l.workloads.broken = nil
	l.connect("c")
	l.Expect(l.seeIn("c", "m")).To(Succeed(), "it is gone")
	for _, kind := range []string{"Node", "Machine"} {
		l.broken.set(kind, errors.New("no cache"))
		l.Expect(l.seeOwn("m")).To(MatchError(l.broken.of(kind)))
		l.broken.clear(kind)
	}
	l.wrote()
	l.told()
}
