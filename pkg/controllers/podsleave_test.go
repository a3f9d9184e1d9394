// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

const softened = "drain:NoSchedule,gpu:NoSchedule"

// pod returns a Pod on Node n0.
func pod(name string, change ...func(*corev1.Pod)) client.Object {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: "n0"}}
	for _, change := range change {
		change(p)
	}
	return p
}

// withinBudgets returns a loop that evicts Pods within their budgets before it applies NoExecute taints.
func withinBudgets(t *testing.T, nodes int, pods ...client.Object) *loop {
	t.Helper()
	l := evictions(t, nodes, append(pods, machineDeployment(), machineSet())...)
	l.NoExecute.Budgets = true
	l.staying = map[string]error{}
	return l
}

// budget returns the answer of an API server to an eviction that a disruption budget does not allow.
func budget() error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 1 healthy pods and has 1 currently"}}
	return err
}

// visit reconciles Node n0, and expects its taints, the time until the next look, and evictions of these Pods.
func (l *loop) visit(taints string, again time.Duration, evicted ...string) {
	l.t.Helper()
	l.writes.take()
	l.looks("n0", taints, again)
	l.Expect(l.evicted()).To(ConsistOf(evicted))
}

func (l *loop) evicted() (names []string) {
	for _, line := range l.writes.take() {
		if name, is := strings.CutPrefix(line, "evicts "); is {
			names = append(names, name)
		}
	}
	return names
}

// The loop evicts the Pods that do not tolerate the taint, as their budgets allow. The taint has effect NoSchedule until they have left.
func TestNoExecuteWithinBudgets(t *testing.T) {
	inUse(t, func(t *testing.T) {
		l := withinBudgets(t, 2,
			pod("web"), pod("elsewhere", func(p *corev1.Pod) { p.Spec.NodeName = "n1" }),
			pod("tolerant", func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: "drain", Operator: corev1.TolerationOpExists}}
			}),
			pod("static", func(p *corev1.Pod) { p.Annotations = pairs(corev1.MirrorPodAnnotationKey) }),
			pod("done", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
			pod("failed", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
			pod("leaving", func(p *corev1.Pod) {
				p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x/y"}
			}),
			pod("daemon", func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", Controller: new(true)}}
			}),
		)
		l.staying["web"] = budget()
		l.visit(softened, 10*time.Second)
		l.told("Normal NoExecuteTaintsSoftened Machine/n0: Node n0 has its NoExecute taints with effect NoSchedule until its Pods have left")
		l.counted("waiting_nodes 1")
		l.visit(softened, 10*time.Second, "web")
		l.told("Normal NoExecuteTaintsHeldUp Machine/n0: Pod web/web stays on Node n0 for now: Cannot evict pod as it would violate the pod's " +
			"disruption budget. The disruption budget web needs 1 healthy pods and has 1 currently")
		l.Expect(l.drained("n1")).To(BeZero(), "another Node has the turn")
		l.counted("waiting_nodes 2")
		l.events.take()
		<-time.After(time.Hour)
		l.visit(softened, 10*time.Second, "web")
		l.events.take()
		delete(l.staying, "web")
		l.visit(softened, 10*time.Second, "web")
		l.visit(all, 0)
		l.told("Normal NoExecuteTaintsApplied Machine/n0: Node n0 has its NoExecute taints")
		l.counted("waiting_nodes 1")
		n := node("n0")
		l.stored(n)
		l.Expect(inherit.WaitsForPods(n)).To(BeFalse())
		l.visit(all, 10*time.Second) // another Node still waits
		l.told()
	})
}

// After the deadline the Node gets its taints, even if budgets still hold Pods, and even if its kubelet changes the record all the time.
func TestNoExecuteDeadline(t *testing.T) {
	inUse(t, func(t *testing.T) {
		l := withinBudgets(t, 1, pod("web"))
		l.NoExecute.Deadline, l.staying["web"] = 15*time.Second, budget()
		l.visit(softened, 10*time.Second)
		<-time.After(10 * time.Second)
		l.visit(softened, 10*time.Second, "web")
		<-time.After(10 * time.Second)
		n := node("n0")
		l.change(n, func() { n.Annotations[inherit.RecordAnnotation] += ";" })
		l.visit(all, 0)
	})
}

// A terminating Pod delays the taint until its grace period is over, and no longer.
func TestNoExecuteWaitsForPodsToTerminate(t *testing.T) {
	inUse(t, func(t *testing.T) {
		l := withinBudgets(t, 1, pod("leaving", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Now().Add(15 * time.Second)}, []string{"x/y"}
		}))
		l.visit(softened, 10*time.Second)
		<-time.After(10 * time.Second)
		l.visit(softened, 10*time.Second)
		<-time.After(10 * time.Second)
		l.visit(all, 0)
	})
}

// A stale cache evicts no Pods, and a Node without a turn loses no Pods.
func TestAStaleCacheEvictsNobody(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*loop, *corev1.Node)
		fails  string
	}{
		"the Machine has lost the taint": {change: func(l *loop, _ *corev1.Node) {
			m := evicting("n0", "MachineSet/ms")
			l.lag(m)
			l.change(m, func() { m.Spec.Taints = m.Spec.Taints[:1] })
		}},
		"the Cluster is skipped by label": {change: func(l *loop, _ *corev1.Node) {
			c := theCluster()
			l.lag(c)
			l.change(c, func() { c.Labels = pairs(inherit.IgnoreLabel) })
		}},
		"the Cluster is only observed": {change: func(l *loop, _ *corev1.Node) {
			c := theCluster()
			l.lag(c)
			l.change(c, func() { c.Labels = map[string]string{inherit.ModeLabel: "observe"} })
		}},
		"the Node has no turn any more": {change: func(l *loop, n *corev1.Node) {
			l.lag(n)
			l.change(n, func() { delete(n.Annotations, inherit.RecordAnnotation) })
		}},
		"the Node is gone":        {change: func(l *loop, n *corev1.Node) { l.lag(n); l.delete(n) }},
		"nobody knows":            {change: func(l *loop, _ *corev1.Node) { l.refuseLive = errors.New("silence") }, fails: "silence"},
		"the Pods cannot be read": {change: func(l *loop, _ *corev1.Node) { l.broken["live PodList"] = errors.New("no Pods") }, fails: "no Pods"},
		"the Node cannot be read": {change: func(l *loop, _ *corev1.Node) { l.broken["live NodeList"] = errors.New("no Node") }, fails: "no Node"},
	} {
		t.Run(name, func(t *testing.T) {
			l := withinBudgets(t, 1, pod("web"))
			l.visit(softened, 10*time.Second)
			n := node("n0")
			tc.change(l, n)
			_, err := l.lookAt("c", "n0")
			if tc.fails == "" {
				l.Expect(err).NotTo(HaveOccurred())
			} else {
				l.Expect(err).To(MatchError(ContainSubstring(tc.fails)))
			}
			l.Expect(l.evicted()).To(BeEmpty())
			l.counted("waiting_nodes 1")
		})
	}
}

// A Pod that stays does not keep the loop from evicting other Pods; neither does a Pod whose eviction fails.
func TestHeldPodsDoNotHoldOthers(t *testing.T) {
	inUse(t, func(t *testing.T) {
		var pods []client.Object
		for i := range 25 {
			pods = append(pods, pod(fmt.Sprintf("p%02d", i)))
		}
		l := withinBudgets(t, 1, pods...)
		for _, p := range pods {
			l.staying[p.GetName()] = budget()
		}
		l.visit(softened, 10*time.Second)
		asked := map[string]int{}
		for range 3 {
			_, again := l.after("n0")
			for _, name := range l.evicted() {
				asked[name]++
			}
			<-time.After(again)
		}
		l.Expect(asked).To(HaveLen(25))
		clear(l.staying)
		l.staying["p00"] = apierrors.NewInternalError(errors.New("more than one budget"))
		for _, gone := range []error{apierrors.NewNotFound(schema.GroupResource{}, "p01"), apierrors.NewConflict(schema.GroupResource{}, "p02", errors.New("another"))} {
			l.staying[fmt.Sprintf("p0%d", len(l.staying))] = gone
		}
		for i := 10; i < 25; i++ {
			l.delete(pods[i])
		}
		l.Expect(l.lookAt("c", "n0")).Error().To(MatchError(And(
			ContainSubstring("Pod web/p00 to leave: "), ContainSubstring("more than one budget"), Not(ContainSubstring("p01")), Not(ContainSubstring("p02")))))
		l.Expect(l.evicted()).To(HaveLen(10))
	})
}

// While budgets hold Pods on a Node, nine tenths of its set stay schedulable, also after a change of leader. Other sets do not wait.
func TestSetsKeepSchedulableNodes(t *testing.T) {
	inUse(t, func(t *testing.T) {
		alone := &clusterv1.MachineSet{ObjectMeta: named("alone"), Spec: clusterv1.MachineSetSpec{ClusterName: "c"}}
		l := withinBudgets(t, 2, pod("web"), alone, evicting("other", "MachineSet/alone"), node("other"))
		l.staying["web"] = budget()
		l.visit(softened, 10*time.Second)
		l.events.take()
		for range 2 {
			<-time.After(time.Hour)
			l.manager = nil // the new leader knows from the Nodes who waits, whichever it sees first
			l.looks("n1", withoutDrain, 10*time.Second)
			l.told("Normal NoExecuteTaintsRollingOut Machine/n1: NoExecute taints evict Pods, so Nodes wait for their turn; " +
				"limit reached in MachineDeployment ns/md (Nodes that wait for their Pods to leave: 1)")
			l.visit(softened, 10*time.Second, "web")
			l.events.take()
		}
		taints, _ := l.after("other")
		l.Expect(taints).To(Equal(softened))
		delete(l.staying, "web")
		l.visit(softened, 10*time.Second, "web")
		l.visit(all, 0)
		<-time.After(time.Minute)
		taints, _ = l.after("n1")
		l.Expect(taints).To(Equal(softened))
	})
}

// The same holds for a MachinePool whose provider creates no Machines.
func TestPoolsKeepSchedulableNodes(t *testing.T) {
	inUse(t, func(t *testing.T) {
		mp := machinePool()
		mp.Spec.ProviderIDList = []string{"id-n0", "id-n1"}
		mp.Spec.Template.Annotations = map[string]string{taint.AlwaysAnnotation: "drain:NoExecute"}
		l := newLoop(t, theCluster(), mp, node("n0"), node("n1"), pod("web"))
		l.NoExecute.Rate, l.NoExecute.Budgets, l.staying = 60, true, map[string]error{"web": budget()}
		l.looks("n0", "drain:NoSchedule", 10*time.Second)
		<-time.After(time.Hour)
		l.manager = nil
		l.looks("n1", "", 10*time.Second)
	})
}

// An API server that answers evictions late, or asks for a retry, for which client-go waits inside the request, does not count as dead: the
// loop asks the other Pods of the Node, and writes other Nodes at once.
func TestSlowEvictionsStopNobody(t *testing.T) {
	for _, takes := range []time.Duration{700 * time.Millisecond, 10 * time.Second} {
		inUse(t, func(t *testing.T) {
			var pods []client.Object
			for i := range 10 {
				pods = append(pods, pod(fmt.Sprintf("p%02d", i)))
			}
			l := withinBudgets(t, 1, append(pods, nodeMachine("other"), node("other"))...)
			l.visit(softened, 10*time.Second)
			l.evictionTakes = takes
			l.looks("n0", softened, 10*time.Second)
			l.Expect(l.evicted()).To(HaveLen(10))
			l.Expect(l.events.take()).To(ContainElement(ContainSubstring("stays on Node n0 for now: the API server does not answer")))
			l.looks("other", withoutDrain, 0)
		})
	}
}

// Nodes that wait for their Pods cause no more live reads than other Nodes, at any number.
func TestNodesWaitingForPodsReadLittle(t *testing.T) {
	inUse(t, func(t *testing.T) {
		l := withinBudgets(t, 1, pod("web"))
		l.staying["web"] = budget()
		l.visit(softened, 10*time.Second)
		for range 300 {
			l.after("n0")
		}
		l.Expect(len(l.evicted())).To(BeNumerically("~", 100, 5))
		<-time.After(time.Second)
		l.visit(softened, 10*time.Second, "web")
	})
}

// Budgets hold in a workload cluster as in the management cluster, and without a rate.
func TestNoExecuteWithinBudgetsOfAWorkloadCluster(t *testing.T) {
	l := withinBudgets(t, 1)
	l.NoExecute.Rate = 0
	l.connect("c", node("n0"), pod("web"))
	for _, want := range []string{softened, softened, all} {
		l.Expect(l.lookAt("c", "n0")).Error().NotTo(HaveOccurred())
		n := node("n0")
		l.Expect(l.workloads.servers[key("c")].Get(t.Context(), client.ObjectKeyFromObject(n), n)).To(Succeed())
		l.Expect(taint.FormatList(n.Spec.Taints)).To(Equal(want))
	}
	l.Expect(l.evicted()).To(Equal([]string{"web"}))
}

// After budgets are switched off, a Node with softened taints gets its NoExecute taints.
func TestFromBudgetsBackToThePace(t *testing.T) {
	inUse(t, func(t *testing.T) {
		l := withinBudgets(t, 1, pod("web"))
		l.visit(softened, 10*time.Second)
		l.NoExecute.Budgets, l.manager = false, nil
		l.NoExecute.Rate = 0
		l.visit(all, 0)
	})
}
