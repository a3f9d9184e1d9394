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
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// A write that is refused is tried again, counted, and told on the Node's Machine unless it mends itself. Until it is there,
// the Node counts as one that lacks its taints.
func TestANodeWhoseWriteIsRefused(t *testing.T) {
	for _, tc := range refusals() {
		t.Run(tc.name, func(t *testing.T) {
			l := newLoop(t, theCluster(), nodeMachine("m"))
			l.connect("c", node("m"))
			l.refuse = tc.err
			l.Expect(l.seeIn("c", "m")).To(MatchError(tc.err))
			l.counted(
				fmt.Sprintf(`resync_writes_total{kind="Node",reason="ahead",result="%s"} 1`, tc.result),
				`unprotected_nodes{cluster_name="c",cluster_namespace="ns"} 1`,
			)
			if tc.tells {
				l.told(fmt.Sprintf("Warning InheritanceFailed Machine/m: Failed to write what is inherited: patching what the Node inherits: %v", tc.err))
			} else {
				l.told()
			}
			l.Expect(samplesOf(t, l.registry)).NotTo(ContainElement(HavePrefix("inherited_keys_total")), "nothing was brought")

			l.refuse = nil
			l.Expect(l.seeIn("c", "m")).To(Succeed())
			l.Expect(samplesOf(t, l.registry)).NotTo(ContainElement(HavePrefix("unprotected_nodes")))
			l.told()
		})
	}
}

// A Node that is gone, or inherits nothing for now, is not one that lacks something.
func TestANodeThatIsGoneLacksNothing(t *testing.T) {
	for name, leave := range map[string]func(*loop, client.Client){
		"it is gone": func(l *loop, workload client.Client) {
			l.Expect(workload.Delete(l.t.Context(), node("m"))).To(Succeed())
		},
		"its Machine is gone": func(l *loop, _ client.Client) {
			l.Expect(l.server.Delete(l.t.Context(), nodeMachine("m"))).To(Succeed())
		},
		"its Cluster is gone": func(l *loop, _ client.Client) {
			l.Expect(l.server.Delete(l.t.Context(), theCluster())).To(Succeed())
			l.Expect(l.seeWorkload(key("c"))).To(Succeed())
			l.refuse = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, theCluster(), nodeMachine("m"))
			workload := l.connect("c", node("m"))
			l.refuse = errors.New("no rights")
			l.Expect(l.seeIn("c", "m")).NotTo(Succeed())
			l.counted(`unprotected_nodes{cluster_name="c",cluster_namespace="ns"} 1`)
			leave(l, workload)
			if l.refuse != nil {
				l.Expect(l.seeIn("c", "m")).To(Succeed())
			}
			l.Expect(samplesOf(t, l.registry)).NotTo(ContainElement(HavePrefix("unprotected_nodes")))
		})
	}
}

// A Node that cannot be looked at for now lacks what it lacked.
func TestANodeThatCannotBeReadIsNotForgotten(t *testing.T) {
	l := newLoop(t, theCluster(), nodeMachine("m"))
	workload := l.connect("c", node("m"))
	l.refuse = errors.New("no rights")
	l.Expect(l.seeIn("c", "m")).NotTo(Succeed())
	const lacks = `unprotected_nodes{cluster_name="c",cluster_namespace="ns"} 1`
	l.counted(lacks)

	l.broken.set("Machine", errors.New("no cache"))
	l.Expect(l.seeIn("c", "m")).To(MatchError(l.broken.of("Machine")))
	l.counted(lacks)
	l.broken.clear("Machine")

	failed := errors.New("no answer")
	l.workloads.clients[key("c")] = interceptor.NewClient(workload, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return failed
		},
	})
	l.Expect(l.seeIn("c", "m")).To(MatchError(failed))
	l.counted(lacks)
}

// The write of a Node holds only for the version that was seen.
func TestANodeThatHasChangedSinceIsAConflict(t *testing.T) {
	n := node("m")
	l := newLoop(t, theCluster(), machineSet(), nodeMachine("m"), n)
	l.lag(n)
	l.change(n, func() { n.Spec.Taints = []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule}} })
	l.Expect(apierrors.IsConflict(l.seeOwn("m"))).To(BeTrue())
	l.counted(`resync_writes_total{kind="Node",reason="ahead",result="conflict"} 1`)
	l.stored(n)
	l.Expect(taint.FormatList(n.Spec.Taints)).To(Equal("mine:NoSchedule"))
	l.told()
}

// What no Node can carry is told on its Machine; the rest comes.
func TestWhatNoNodeCanCarryIsLeftOut(t *testing.T) {
	m := nodeMachine("m")
	m.Labels["node.cluster.x-k8s.io/bad"] = "not a value"
	l := newLoop(t, theCluster(), machineSet(), m, node("m"))
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.wrote("patches Node /m@999 " + inheritedByNode)
	l.told(`Warning NotInherited Machine/m: Machine ns/m (metadata.labels): label "node.cluster.x-k8s.io/bad"="not a value": no Node can carry it`)
}

// What somebody has taken from a Node is put back, and who can stop that is told so on the Machine.
func TestATaintThatSomebodyTookAwayIsPutBack(t *testing.T) {
	n := node("m")
	l := newLoop(t, theCluster(), machineSet(), nodeMachine("m"), n)
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.change(n, func() { n.Spec.Taints = nil })
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.stored(n)
	l.Expect(taint.FormatList(n.Spec.Taints)).To(Equal("gpu:NoSchedule"))
	l.told(`Normal DriftRepaired Machine/m: Node m had lost what it inherits: taint "gpu:NoSchedule" put back`)
	l.counted(`drift_repaired_total{by="resync",kind="Node",what="taint"} 1`)
}

// An annotation that does not say rightly what came from the Machine is mended, and told.
func TestABrokenRecordIsMended(t *testing.T) {
	n := node("m")
	n.Annotations = map[string]string{clusterv1.TaintsFromMachineAnnotation: ":::"}
	l := newLoop(t, theCluster(), machineSet(), nodeMachine("m"), n)
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.told("Warning TrackingAnnotationBroken Machine/m: Node m had a wrong record of which taints come from its Machine")
	l.Expect(l.stored(n).GetAnnotations()).To(HaveKeyWithValue(clusterv1.TaintsFromMachineAnnotation, "gpu:NoSchedule"))
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.told()
}

// How long a new Node was without the labels that its kubelet may not bring is measured once, when it has got them.
func TestHowLongANewNodeWaitsForItsLabels(t *testing.T) {
	n, m := node("m"), nodeMachine("m")
	n.CreationTimestamp = metav1.NewTime(time.Now())
	m.Labels[worker] = ""
	l := newLoop(t, theCluster(), machineSet(), m, n)
	l.refuse = errors.New("no rights")
	l.Expect(l.seeOwn("m")).NotTo(Succeed())
	l.counted("node_labels_delay_seconds_count 0")
	l.refuse = nil
	for range 2 {
		l.Expect(l.seeOwn("m")).To(Succeed())
		l.counted("node_labels_delay_seconds_count 1")
	}
}

// A kubelet that changes the record of its Node gets nothing by it, neither while what it lists is declared nor after that.
func TestARecordThatItsKubeletHasChangedIsPutBack(t *testing.T) {
	m, n := nodeMachine("m"), node("m")
	l := newLoop(t, theCluster(), machineSet(), m, n)
	for range 2 { // the second look finds it settled
		l.Expect(l.seeOwn("m")).To(Succeed())
	}
	l.stored(n)
	recorded := n.Annotations[inherit.RecordAnnotation]
	l.Expect(recorded).To(Equal(";gpu:NoSchedule"))

	l.change(n, func() { n.Annotations[inherit.RecordAnnotation] = ";mine:NoSchedule" })
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.stored(n)
	l.Expect(n.Annotations[inherit.RecordAnnotation]).To(Equal(recorded))

	l.change(n, func() { clear(n.Annotations) })
	l.change(m, func() { m.Labels, m.Spec.Taints = map[string]string{clusterv1.ClusterNameLabel: "c"}, nil })
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.stored(n)
	l.Expect(n.Spec.Taints).To(BeEmpty(), "the leader knows the record that its label confirms")
}
