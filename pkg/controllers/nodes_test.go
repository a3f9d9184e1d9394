// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// inherited expects that Node m has label pool=a and taint gpu of its Machine, with their records.
func (l *loop) inherited() {
	l.t.Helper()
	n := node("m")
	l.stored(n)
	l.Expect(n.Labels).To(HaveKeyWithValue(pool, "a"))
	l.Expect(n.Spec.Taints).To(ContainElement(corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}))
	l.Expect(n.Annotations).To(And(
		HaveKeyWithValue(clusterv1.LabelsFromMachineAnnotation, pool), HaveKeyWithValue(clusterv1.TaintsFromMachineAnnotation, "gpu:NoSchedule"),
		HaveKeyWithValue(inherit.RecordAnnotation, ";gpu:NoSchedule")))
}

// nodeMachine returns a Machine that declares a label and a taint for its Node.
func nodeMachine(name string) *clusterv1.Machine {
	m := machine(name, "MachineSet/ms")
	m.Labels[pool] = "a"
	m.Spec.Taints = []clusterv1.MachineTaint{{Key: "gpu", Effect: "NoSchedule", Propagation: "Always"}}
	return m
}

// loseAll removes the declarations for the Node from a Machine.
func loseAll(m *clusterv1.Machine) func() {
	return func() { m.Labels, m.Spec.Taints = map[string]string{clusterv1.ClusterNameLabel: "c"}, nil }
}

// taintsOf returns a Node's taints.
func (l *loop) taintsOf(name string) string {
	l.t.Helper()
	n := node(name)
	l.stored(n)
	return taint.FormatList(n.Spec.Taints)
}

// A Node of the management cluster inherits in one patch. The next look makes no API call.
func TestANodeInheritsFromItsMachine(t *testing.T) {
	l := newLoop(t, theCluster(), machineSet(), nodeMachine("m"), node("m"))
	l.Expect(l.seeNode("m")).To(Succeed())
	l.wrote("patches Node/m")
	l.inherited()
	l.live.take()
	l.counted(
		`resync_writes_total{kind="Node",result="applied"} 1`,
		`inherited_keys_total{action="injected",kind="Node",type="label",writer="resync"} 1`,
		`inherited_keys_total{action="injected",kind="Node",type="taint",writer="resync"} 1`,
	)
	l.Expect(l.seeNode("m")).To(Succeed())
	l.wrote()
	l.told()
	l.Expect(l.live.take()).To(BeEmpty())
}

// Node names repeat between clusters. Each Node inherits from a Machine of its own Cluster, and the loop patches it in this cluster.
func TestANodeOfAWorkloadClusterInheritsFromItsOwnCluster(t *testing.T) {
	m, other := nodeMachine("same"), nodeMachine("same-name")
	m.Status.NodeRef.Name, other.Status.NodeRef.Name = "same", "same"
	m.Spec.ProviderID, other.Spec.ProviderID = "", ""
	other.Spec.ClusterName, other.Labels[pool] = "d", "b"
	l := newLoop(t, theCluster(), &clusterv1.Cluster{ObjectMeta: named("d")}, m, other)
	for _, cluster := range []string{"c", "d"} {
		l.connect(cluster, node("same"))
	}
	for range 2 {
		for _, cluster := range []string{"c", "d"} {
			l.Expect(l.lookAt(cluster, "same")).To(BeZero())
		}
	}
	l.wrote("in c: patches Node/same", "in d: patches Node/same")
	for cluster, want := range map[string]string{"c": "a", "d": "b"} {
		n := node("same")
		l.Expect(l.workloads.servers[key(cluster)].Get(t.Context(), client.ObjectKeyFromObject(n), n)).To(Succeed())
		l.Expect(n.Labels).To(HaveKeyWithValue(pool, want))
	}
}

// A Node loses the entries that its Machine no longer declares. Entries of other managers stay.
func TestNodesLoseRemovedDeclarations(t *testing.T) {
	m, n := nodeMachine("m"), node("m")
	observed(m) // the loop does not leave the write to Cluster API's Machine controller
	l := newLoop(t, theCluster(), machineSet(), m, n)
	l.Expect(l.seeNode("m")).To(Succeed())
	l.change(n, func() {
		n.Labels["mine"] = "yes"
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoSchedule})
	})
	l.change(m, loseAll(m))
	l.Expect(l.seeNode("m")).To(Succeed())
	l.stored(n)
	l.Expect(n.Labels).To(And(HaveLen(2), HaveKeyWithValue("mine", "yes"), HaveKey(inherit.RecordLabel)))
	l.Expect(l.taintsOf("m")).To(Equal("mine:NoSchedule"))
	l.counted(
		`inherited_keys_total{action="removed",kind="Node",type="label",writer="resync"} 1`,
		`inherited_keys_total{action="removed",kind="Node",type="taint",writer="resync"} 1`,
	)
	l.told()
}

// Nodes of the management cluster inherit only if its Cluster is named, and then as Nodes of this Cluster. Its kubeconfig is not used.
func TestTheManagementClusterIsNamed(t *testing.T) {
	l := newLoop(t, theCluster(), machineSet(), nodeMachine("m"), node("m"))
	l.connect("c", node("m"))
	l.Expect(l.seeNode("m")).To(Succeed())
	l.Expect(l.writes.take()).To(ConsistOf("in c: patches Node/m"))
	l.ManagementCluster = key("c")
	l.Expect(l.seeNode("m")).To(Succeed())
	l.Expect(l.writes.take()).To(ConsistOf("patches Node/m"))
	l.ManagementCluster = key("another")
	l.delete(node("m"))
	l.Expect(l.lookAt("another", "m")).To(BeZero())
	l.wrote()
}

// A Node inherits until its deletion is complete: its kubelet may have added finalizers, which must not protect it from taints.
func TestANodeInheritsWhileItIsBeingDeleted(t *testing.T) {
	m, n := nodeMachine("m"), node("m")
	n.DeletionTimestamp = &metav1.Time{Time: m.CreationTimestamp.Time}
	l := newLoop(t, theCluster(), machineSet(), m, n)
	l.Expect(l.seeNode("m")).To(Succeed())
	l.inherited()
	l.change(n, func() { n.Spec.Taints = nil })
	l.Expect(l.seeNode("m")).To(Succeed())
	l.Expect(l.taintsOf("m")).To(Equal("gpu:NoSchedule"))
	l.change(m, loseAll(m))
	l.Expect(l.seeNode("m")).To(Succeed())
	l.Expect(l.taintsOf("m")).To(BeEmpty())
	l.Expect(l.stored(n).GetLabels()).NotTo(HaveKey(pool))
}

func TestUnreachableNodes(t *testing.T) {
	l := newLoop(t, theCluster(), nodeMachine("m"), node("m"))
	l.ManagementCluster = types.NamespacedName{}
	l.Expect(l.seeNode("m")).To(Succeed(), "the cluster is not connected; its connection triggers the next look")
	l.workloads.broken[key("c")] = errors.New("no way")
	l.Expect(l.seeNode("m")).To(MatchError(ContainSubstring("reaching the workload cluster ns/c: no way")))
	delete(l.workloads.broken, key("c"))
	l.connect("c")
	l.Expect(l.seeNode("m")).To(Succeed(), "the Node is gone")
	l.ManagementCluster = key("c")
	for _, kind := range []string{"Node", "Machine"} {
		l.broken[kind] = errors.New("no cache")
		l.Expect(l.seeNode("m")).To(MatchError(l.broken[kind]))
		delete(l.broken, kind)
	}
	l.wrote()
	l.told()
}

const lacks = `unprotected_nodes{cluster_name="c",cluster_namespace="ns"} 1`

// The loop retries and counts a refused write, and records an Event on the Node's Machine, except after a conflict or if the Node is gone.
// Until the write succeeds, the Node counts as unprotected.
func TestRefusedWritesOfNodesAreRetriedAndReported(t *testing.T) {
	for name, tc := range refusals() {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, theCluster(), nodeMachine("m"))
			l.connect("c", node("m"))
			l.refuse = tc.err
			l.refusedNode("m", tc.err)
			attempts := 1
			if apierrors.IsConflict(tc.err) {
				attempts = 2 // the second with the stored Node
			}
			l.counted(fmt.Sprintf(`resync_writes_total{kind="Node",result="%s"} %d`, tc.result, attempts), lacks)
			if tc.tells {
				l.told(fmt.Sprintf("Warning InheritanceFailed Machine/m: Failed to write inherited entries: patching inherited entries of the Node: %v", tc.err))
			} else {
				l.told()
			}
			l.notCounted("inherited_keys_total")

			l.refuse = nil
			l.Expect(l.seeNode("m")).To(Succeed())
			l.notCounted("unprotected_nodes")
			l.told()
		})
	}
}

// A deleted Node, or a Node that inherits nothing for now, does not count as unprotected. A Node that cannot be reconciled for now keeps
// its count.
func TestDeletedNodesAreNotUnprotected(t *testing.T) {
	for name, leave := range map[string]func(*loop, client.Client){
		"it is gone": func(l *loop, workload client.Client) {
			l.Expect(workload.Delete(l.t.Context(), node("m"))).To(Succeed())
			l.Expect(l.seeNode("m")).To(Succeed())
		},
		"its Machine is gone": func(l *loop, _ client.Client) {
			l.delete(nodeMachine("m"))
			l.Expect(l.seeNode("m")).To(Succeed())
		},
		"its Cluster is gone": func(l *loop, _ client.Client) {
			l.delete(theCluster())
			l.Expect(l.seeWorkload(key("c"))).To(Succeed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, theCluster(), nodeMachine("m"))
			workload := l.connect("c", node("m"))
			l.refuse = errors.New("no rights")
			l.Expect(l.seeNode("m")).NotTo(Succeed())
			l.counted(lacks)
			l.broken["Machine"] = errors.New("no cache")
			l.Expect(l.seeNode("m")).To(MatchError(l.broken["Machine"]))
			l.counted(lacks)

			clear(l.broken)
			leave(l, workload)
			l.notCounted("unprotected_nodes")
		})
	}
}

// A reconcile that is still running when its Cluster is deleted, or goes to another instance, leaves no findings.
func TestClustersThatGoDuringAReconcileAreForgotten(t *testing.T) {
	for name, goes := range map[string]func(*loop){
		"it is deleted":               func(l *loop) { l.delete(theCluster()) },
		"another instance handles it": func(l *loop) { l.policy.WatchFilter = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			l := evictions(t, 1, machineDeployment(), machineSet(), evicting("n1", "MachineSet/ms"))
			server := l.connect("c", node("n0"), node("n1"))
			l.Expect(l.lookAt("c", "n0")).Error().NotTo(HaveOccurred())
			l.workloads.clients[key("c")] = interceptor.NewClient(server, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
					goes(l)
					l.Expect(l.seeWorkload(key("c"))).To(Succeed())
					return c.Patch(ctx, object, patch, options...)
				},
			})
			l.Expect(l.lookAt("c", "n1")).Error().NotTo(HaveOccurred())
			l.counted(noneWaits)
		})
	}
}

// refusedNode reconciles a Node whose write is refused. After each conflict the next look comes soon: a kubelet that writes the Node all
// the time must not delay it.
func (l *loop) refusedNode(name string, refusal error) {
	l.t.Helper()
	again, err := l.lookAt("c", name)
	if apierrors.IsConflict(refusal) {
		l.Expect(err).NotTo(HaveOccurred())
		l.Expect(again).To(Equal(100 * time.Millisecond))
		return
	}
	l.Expect(again).To(BeZero())
	l.Expect(err).To(MatchError(refusal))
}

// The patch of a Node holds only for the version that the loop has read. After a conflict, the loop reads the Node from its API server: the
// cache may be behind for long, and each further attempt from the cache would be refused too.
func TestConflictIsRepairedFromTheStoredNode(t *testing.T) {
	n := node("m")
	l := newLoop(t, theCluster(), machineSet(), nodeMachine("m"), n)
	l.lag(n)
	l.change(n, func() { n.Spec.Taints = []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule}} })
	for range 3 {
		again, err := l.lookAt("c", "m")
		l.Expect(err).NotTo(HaveOccurred())
		l.Expect(again).To(BeZero())
	}
	l.counted(`resync_writes_total{kind="Node",result="conflict"} 3`, `resync_writes_total{kind="Node",result="applied"} 1`)
	l.Expect(l.taintsOf("m")).To(Equal("gpu:NoSchedule,mine:NoSchedule"))
}

// An Event on the Machine reports an entry that no Node can carry. The Node inherits the rest.
func TestInvalidEntriesOfNodesAreLeftOutAndReported(t *testing.T) {
	m := nodeMachine("m")
	m.Labels["node.cluster.x-k8s.io/bad"] = "not a value"
	l := newLoop(t, theCluster(), machineSet(), m, node("m"))
	l.Expect(l.seeNode("m")).To(Succeed())
	l.inherited()
	l.told(`Warning NotInherited Machine/m: Machine ns/m (metadata.labels): label "node.cluster.x-k8s.io/bad"="not a value": no Node can carry it`)
}

// The loop restores an entry that another client has removed from a Node, and an Event on the Machine says how to stop the repair. The loop
// does not restore an entry that Cluster API removed because the owners no longer declare it: a stale cache restores no entries.
func TestDriftIsRepairedByLiveOwners(t *testing.T) {
	md, ms, m, n := machineDeployment(pool+"=a"), machineSet(pool+"=a"), nodeMachine("m"), node("m")
	l := newLoop(t, theCluster(), md, ms, m, n)
	l.Expect(l.seeNode("m")).To(Succeed())
	l.change(n, func() {
		n.Spec.Taints, n.Labels = nil, map[string]string{inherit.RecordLabel: n.Labels[inherit.RecordLabel]}
	})
	l.Expect(l.seeNode("m")).To(Succeed())
	l.Expect(l.taintsOf("m")).To(Equal("gpu:NoSchedule"))
	l.told(`Normal DriftRepaired Machine/m: Restored inherited entries of Node m: label "node.cluster.x-k8s.io/pool", taint "gpu:NoSchedule"`)
	l.counted(`drift_repaired_total{kind="Node",type="taint",writer="resync"} 1`, `drift_repaired_total{kind="Node",type="label",writer="resync"} 1`)

	l.lag(md, ms, m)
	l.change(md, func() { declare(md) })
	l.change(ms, func() { declare(ms) })
	l.change(m, loseAll(m))
	l.stored(n)
	l.change(n, func() { n.Spec.Taints = nil; delete(n.Labels, pool) })
	l.Expect(l.seeNode("m")).To(Succeed())
	l.stored(n)
	l.Expect(n.Labels).NotTo(HaveKey(pool))
	l.Expect(n.Spec.Taints).To(BeEmpty())
	l.told()

	l.change(n, func() { n.Labels["touched"] = "yes" })
	l.refuseLive = errors.New("no answer")
	l.Expect(l.seeNode("m")).To(MatchError(l.refuseLive))
	l.Expect(l.taintsOf("m")).To(BeEmpty(), "the loop does not write from its cache while the API server does not answer")
}

// Live decisions about the Nodes of a Cluster are limited. Beyond the limit, a Node waits, and the loop does not write it from its cache.
func TestReadsOfAClusterAreLimited(t *testing.T) {
	inUse(t, func(t *testing.T) {
		n, again, writes := node("m"), time.Duration(0), 0
		l := newLoop(t, theCluster(), machineSet(), nodeMachine("m"), n)
		for ; again == 0; writes += len(l.writes.take()) {
			l.change(n, func() { delete(n.Labels, pool) })
			var err error
			again, err = l.lookAt("c", "m")
			l.Expect(err).NotTo(HaveOccurred())
		}
		l.Expect(writes).To(Equal(100))
		<-time.After(again)
		l.Expect(l.seeNode("m")).To(Succeed())
		l.inherited()
	})
}

// The loop repairs a wrong tracking annotation, and an Event reports it.
func TestABrokenRecordIsMended(t *testing.T) {
	n := node("m")
	n.Annotations = map[string]string{clusterv1.TaintsFromMachineAnnotation: ":::"}
	l := newLoop(t, theCluster(), machineSet(), nodeMachine("m"), n)
	l.Expect(l.seeNode("m")).To(Succeed())
	l.told("Warning TrackingAnnotationBroken Machine/m: Repaired the record of taints from the Machine on Node m")
	l.Expect(l.stored(n).GetAnnotations()).To(HaveKeyWithValue(clusterv1.TaintsFromMachineAnnotation, "gpu:NoSchedule"))
	l.Expect(l.seeNode("m")).To(Succeed())
	l.told()
}

// The time that a new Node waits for the labels that its kubelet may not set is measured once, when the Node has them.
func TestDelayOfRestrictedLabelsIsMeasuredOnce(t *testing.T) {
	n, m := node("m"), nodeMachine("m")
	n.CreationTimestamp = metav1.NewTime(time.Now())
	m.Labels[worker] = ""
	l := newLoop(t, theCluster(), machineSet(), m, n)
	l.refuse = errors.New("no rights")
	l.Expect(l.seeNode("m")).NotTo(Succeed())
	l.counted("node_labels_delay_seconds_count 0")
	l.refuse = nil
	for range 2 {
		l.Expect(l.seeNode("m")).To(Succeed())
		l.counted("node_labels_delay_seconds_count 1")
	}
}

// A kubelet that changes the record of its Node gains nothing, neither while the owners declare the listed entries nor later, as long as
// the leader has seen the record.
func TestRecordsChangedByKubeletsAreRestored(t *testing.T) {
	m, n := nodeMachine("m"), node("m")
	l := newLoop(t, theCluster(), machineSet(), m, n)
	l.Expect(l.seeNode("m")).To(Succeed())
	l.stored(n)
	recorded := n.Annotations[inherit.RecordAnnotation]
	l.Expect(recorded).To(Equal(";gpu:NoSchedule"))

	for _, lead := range []string{"the leader that wrote it", "the next leader, which has seen it while no write came through"} {
		l.change(n, func() { n.Annotations[inherit.RecordAnnotation] = ";mine:NoSchedule" })
		l.Expect(l.seeNode("m")).To(Succeed())
		l.stored(n)
		l.Expect(n.Annotations[inherit.RecordAnnotation]).To(Equal(recorded), lead)
		l.manager, l.refuse = nil, errors.New("no rights")
		l.change(n, func() { delete(n.Labels, pool) })
		l.Expect(l.seeNode("m")).NotTo(Succeed())
		l.refuse = nil
	}

	l.change(n, func() { clear(n.Annotations) })
	l.change(m, loseAll(m))
	l.Expect(l.seeNode("m")).To(Succeed())
	l.Expect(l.taintsOf("m")).To(BeEmpty(), "the leader knows the record with the matching label")
}

// A kubelet cannot make Heirloom skip its Node. A metric counts the Nodes that other clients skip by label.
func TestNodesSkippedByLabelAreCounted(t *testing.T) {
	m, n, cluster := nodeMachine("m"), node("m"), theCluster()
	n.Labels = pairs(inherit.IgnoreLabel)
	l := newLoop(t, cluster, machineSet(), m, n)
	const count = `skipped_nodes{cluster_name="c",cluster_namespace="ns"} 1`
	l.Expect(l.seeNode("m")).To(Succeed())
	l.Expect(l.stored(n).GetLabels()).To(HaveKeyWithValue(pool, "a"), "the Node's own label has no effect")
	l.notCounted(count)
	for _, leave := range []func(){
		func() { l.change(m, func() { m.Labels[inherit.IgnoreLabel] = "" }) },
		func() { l.change(cluster, func() { cluster.Labels = pairs(inherit.IgnoreLabel) }) },
	} {
		leave()
		l.Expect(l.seeNode("m")).To(Succeed())
		l.counted(count)
		l.change(m, func() { delete(m.Labels, inherit.IgnoreLabel) })
		l.change(cluster, func() { cluster.Labels = nil })
		l.Expect(l.seeNode("m")).To(Succeed())
		l.notCounted(count)
	}
	l.change(m, func() { m.Labels[inherit.IgnoreLabel] = "" })
	l.Expect(l.seeNode("m")).To(Succeed())
	l.delete(n)
	l.Expect(l.seeNode("m")).To(Succeed())
	l.notCounted(count)
}

// With heirloom.dev/ignore=cleanup, the Node also loses the entries that Heirloom tracks there, in the management cluster and in a
// workload cluster.
func TestLabelCleansUpNodes(t *testing.T) {
	for _, connected := range []bool{false, true} {
		m, n := nodeMachine("m"), node("m")
		l := newLoop(t, theCluster(), machineSet(), m, n)
		server := client.Client(l.server)
		if connected {
			server = l.connect("c", node("m"))
		}
		l.Expect(l.seeNode("m")).To(Succeed())
		l.Expect(server.Get(t.Context(), client.ObjectKeyFromObject(n), n)).To(Succeed())
		l.Expect(n.Labels).To(HaveKey(inherit.RecordLabel))
		l.change(m, func() { m.Labels[inherit.IgnoreLabel] = inherit.IgnoreAndCleanUp })
		for range 2 {
			l.Expect(l.seeNode("m")).To(Succeed())
			l.Expect(server.Get(t.Context(), client.ObjectKeyFromObject(n), n)).To(Succeed())
			l.Expect(n.Labels).NotTo(HaveKey(inherit.RecordLabel))
			l.Expect(n.Annotations).NotTo(HaveKey(HavePrefix("heirloom.dev/")))
		}
		l.counted(`skipped_nodes{cluster_name="c",cluster_namespace="ns"} 1`)
	}
}
