// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/controllers"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// thousand is a fleet of Clusters in virtual time, with the loop and its queue of Nodes.
type thousand struct {
	*loop
	shelf   *shelf
	servers map[string]*shelf
	// queue has the next visit of each Node, and visits that are no longer the next.
	queue  visits
	next   map[controllers.NodeRequest]time.Time
	looks  int // of the loop at a Node
	random *rand.Rand
	// bad says that Pods that were evicted find no other Node, budget that a disruption budget lets no Pod go.
	bad, budget bool
	// soft are the Nodes of a Cluster that wait for their Pods, tainted those that have the taint, began the time of each Cluster's first turn.
	soft, tainted map[string]map[string]bool
	began, ended  map[string]time.Time
}

// newThousand returns a fleet of this number of Clusters. The waves of the first Clusters are in their labels.
func newThousand(t *testing.T, clusters int, nodes func(cluster int) int, waves map[int]string) *thousand {
	t.Helper()
	f := &thousand{
		loop: newLoop(t), shelf: &shelf{at: map[string]int{}, pools: map[string]*clusterv1.MachinePool{}}, servers: map[string]*shelf{}, random: rand.New(rand.NewPCG(1, 2)),
		next: map[controllers.NodeRequest]time.Time{},
		soft: map[string]map[string]bool{}, tainted: map[string]map[string]bool{}, began: map[string]time.Time{}, ended: map[string]time.Time{},
	}
	f.shelf.Client, f.ManagementCluster = f.server, client.ObjectKey{}
	for i := range clusters {
		name, labels := fmt.Sprintf("c%04d", i), map[string]string{}
		if wave := waves[i]; wave != "" {
			labels[inherit.WaveLabel] = wave
		}
		of := f.shelf.add(name, labels, nodes(i))
		of.wrote = func(n *corev1.Node) { f.sees(name, n) }
		of.evicts = func(pod *corev1.Pod) error { return f.evicted(name, pod) }
		f.servers[name], f.soft[name], f.tainted[name] = of, map[string]bool{}, map[string]bool{}
		f.workloads.clients[key(name)] = of
	}
	f.looksAtAll(time.Now())
	f.Client, f.Live = f.shelf, f.shelf
	f.Chain = &owners.Chain{Cache: f.shelf, Live: f.shelf, Mapper: f.mapper, Layout: f.schemas.ControlPlane}
	f.NoExecute = inherit.NoExecute{Budgets: true, Rate: 1, Clusters: intstr.FromString("10%"), Soak: 5 * time.Minute}
	return f
}

// looksAtAll lets the loop of a new leader look at all Nodes.
func (f *thousand) looksAtAll(at time.Time) {
	for _, of := range f.shelf.clusters {
		for i := range f.servers[of.Name].nodes {
			f.enqueue(at, of.Name, f.servers[of.Name].nodes[i].Name)
		}
	}
}

// newLeader is a leader without memory, which looks at all Nodes.
func (f *thousand) newLeader(at time.Time) {
	f.manager, f.queue, f.next = nil, nil, map[controllers.NodeRequest]time.Time{}
	f.looksAtAll(at)
}

// enqueue enqueues a Node, unless its next visit is sooner.
func (f *thousand) enqueue(at time.Time, cluster, node string) {
	req := controllers.NodeRequest{Cluster: key(cluster), Name: node}
	if next, waits := f.next[req]; !waits || at.Before(next) {
		f.next[req] = at
		heap.Push(&f.queue, visitAt{at, req})
	}
}

// declare declares a taint that evicts Pods in every Cluster.
func (f *thousand) declare() {
	for _, pool := range f.shelf.pools {
		pool.Spec.Template.Annotations = map[string]string{taint.AlwaysAnnotation: "drain:NoExecute"}
	}
}

// evicted deletes a Pod. Its controller makes another one, for which there may be no Node.
func (f *thousand) evicted(cluster string, pod *corev1.Pod) error {
	of := f.servers[cluster]
	f.Expect(f.soft[cluster]).To(HaveKey(pod.Spec.NodeName), "Pods are asked to leave only a Node that waits for them")
	if f.budget {
		return budget()
	}
	for i := range of.pods {
		if of.pods[i].Name == pod.Name {
			of.pods[i].Spec.NodeName = "elsewhere"
			if f.bad {
				of.pods[i].Spec.NodeName = ""
				of.pods[i].Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.Now(),
				}}
			}
		}
	}
	return nil
}

// sees checks the promises after each write of a Node.
func (f *thousand) sees(cluster string, n *corev1.Node) {
	f.enqueue(time.Now(), cluster, n.Name) // its event
	delete(f.soft[cluster], n.Name)
	if inherit.WaitsForPods(n) {
		f.soft[cluster][n.Name] = true
	}
	if strings.Contains(taint.FormatList(n.Spec.Taints), "drain:NoExecute") {
		f.tainted[cluster][n.Name] = true
	}
	if f.began[cluster].IsZero() && len(f.soft[cluster])+len(f.tainted[cluster]) > 0 {
		f.began[cluster] = time.Now()
	}
	nodes := len(f.servers[cluster].nodes)
	if f.NoExecute.Rate > 0 {
		f.Expect(len(f.soft[cluster])).To(BeNumerically("<=", max(1, nodes/10)), "nine tenths of the Nodes of %s can take Pods", cluster)
	}
	if f.ended[cluster].IsZero() && len(f.tainted[cluster]) == nodes {
		f.ended[cluster] = time.Now()
	}
}

// run lets the loop work for a time. With deaths, leaders die, on average once in this time.
func (f *thousand) run(lasts, deaths time.Duration) {
	until := time.Now().Add(lasts)
	for f.queue.Len() > 0 && f.queue[0].at.Before(until) {
		next, _ := heap.Pop(&f.queue).(visitAt)
		if f.next[next.NodeRequest] != next.at {
			continue
		}
		delete(f.next, next.NodeRequest)
		if wait := time.Until(next.at); wait > 0 {
			if deaths > 0 && f.random.Float64() < wait.Seconds()/deaths.Seconds() {
				f.newLeader(next.at)
			}
			<-time.After(wait)
		}
		f.looks++
		again, err := f.lookAt(next.Cluster.Name, next.Name)
		f.Expect(err).NotTo(HaveOccurred())
		if again > 0 {
			f.enqueue(time.Now().Add(again), next.Cluster.Name, next.Name)
		}
	}
	<-time.After(max(0, time.Until(until)))
}

// visitAt is the next visit of a Node, visits the queue of the loop.
type visitAt struct {
	at time.Time
	controllers.NodeRequest
}

type visits []visitAt

func (v visits) Len() int           { return len(v) }
func (v visits) Less(i, j int) bool { return v[i].at.Before(v[j].at) }
func (v visits) Swap(i, j int)      { v[i], v[j] = v[j], v[i] }
func (v *visits) Push(next any)     { *v = append(*v, next.(visitAt)) } //nolint:forcetypeassert // of a heap of visits
func (v *visits) Pop() any {
	all := *v
	last := all[len(all)-1]
	*v = all[:len(all)-1]
	return last
}

// A taint that leaves Pods without a Node reaches no Node beyond the first wave of a thousand Clusters, and few Nodes there, whichever leader
// dies when.
func TestABadTaintStaysInTheFirstWave(t *testing.T) {
	inUse(t, func(t *testing.T) {
		const wave = 4
		f := newThousand(t, 1000, func(cluster int) int { return map[bool]int{true: 20, false: 1}[cluster < wave] }, map[int]string{0: "1", 1: "1", 2: "1", 3: "1"})
		f.bad = true
		f.declare()
		f.run(8*time.Minute, 2*time.Minute)
		for cluster, nodes := range f.tainted {
			if cluster >= fmt.Sprintf("c%04d", wave) {
				f.Expect(nodes).To(BeEmpty(), cluster)
			} else {
				f.Expect(len(nodes)).To(BeNumerically("<=", 2), cluster)
			}
		}
		f.Expect(len(f.began)).To(Equal(wave))
		f.Expect(f.events.take()).To(ContainElement(And(HavePrefix("Warning NoExecuteTaintsHalted MachinePool/c000"), ContainSubstring("unschedulable Pods since"))))
		f.Expect(f.samples()).To(ContainElement(HavePrefix(`no_execute_halted{cluster_name="c000`)))

		f.bad = false // Pods find Nodes again, and the roll-out goes on
		for _, of := range f.servers {
			for i := range of.pods {
				of.pods[i].Status.Conditions = nil
			}
		}
		for until := time.Now().Add(time.Hour); len(f.ended) < wave && time.Now().Before(until); {
			f.run(5*time.Minute, 0)
		}
		for cluster := range wave {
			f.Expect(f.ended).To(HaveKey(fmt.Sprintf("c%04d", cluster)))
		}
	})
}

// A taint reaches all Nodes of a thousand Clusters wave by wave, in a tenth of the Clusters at a time, and a Cluster begins when another has been
// done for a while.
func TestATaintReachesTheFleetInWaves(t *testing.T) {
	inUse(t, func(t *testing.T) {
		f := newThousand(t, 1000, func(int) int { return 1 }, map[int]string{900: "1", 901: "2", 902: "1"})
		f.declare()
		for until := time.Now().Add(3 * time.Hour); len(f.ended) < 1000 && time.Now().Before(until); {
			f.run(5*time.Minute, 20*time.Minute)
		}
		f.Expect(len(f.ended)).To(Equal(1000))
		f.Expect(f.began["c0901"].Sub(f.ended["c0900"])).To(BeNumerically(">=", 5*time.Minute))
		f.Expect(f.began["c0901"].Sub(f.ended["c0902"])).To(BeNumerically(">=", 5*time.Minute))
		for cluster, begin := range f.began {
			atATime := 0
			for other, end := range f.ended {
				if !f.began[other].After(begin) && begin.Before(end.Add(5*time.Minute)) {
					atATime++
				}
			}
			f.Expect(atATime).To(BeNumerically("<=", 100), cluster)
			if f.ended["c0901"].Add(5*time.Minute).After(begin) && cluster != "c0900" && cluster != "c0901" && cluster != "c0902" {
				t.Errorf("%s begins before the waves before it are over", cluster)
			}
		}
		f.run(time.Hour, 0)
		for _, of := range f.servers {
			for i := range of.nodes {
				f.Expect(inherit.RecordOf(inherit.OfNode(&of.nodes[i])).Turn()).To(BeZero(), "no record says that the roll-out goes on")
			}
		}
	})
}

// The label of a Cluster or of its class halts a roll-out, also where Pods have been asked to leave.
func TestARollOutIsPausedByHand(t *testing.T) {
	inUse(t, func(t *testing.T) {
		f := newThousand(t, 2, func(int) int { return 2 }, map[int]string{0: "1"})
		f.declare()
		f.budget = true
		f.run(15*time.Second, 0)
		f.Expect(f.soft["c0000"]).To(HaveLen(1))
		f.shelf.clusters[0].Labels[inherit.NoExecuteLabel], f.budget = inherit.NoExecutePaused, false
		f.run(time.Hour, 0)
		f.Expect(f.tainted["c0000"]).To(BeEmpty())
		f.Expect(f.began).NotTo(HaveKey("c0001"))
		f.Expect(f.evictions()).To(BeZero())
		delete(f.shelf.clusters[0].Labels, inherit.NoExecuteLabel)
		f.run(time.Hour, 0)
		f.Expect(f.ended).To(HaveLen(2))
	})
}

func (f *thousand) evictions() (count int) {
	for _, of := range f.servers {
		for i := range of.pods {
			if of.pods[i].Spec.NodeName == "elsewhere" {
				count++
			}
		}
	}
	return count
}

// Nodes that stop being ready halt a roll-out. Nodes that are new, or were not ready before, do not.
func TestNodesThatStopBeingReadyHaltARollOut(t *testing.T) {
	inUse(t, func(t *testing.T) {
		f := newThousand(t, 1, func(int) int { return 5 }, nil)
		of := f.servers["c0000"]
		notReady := func(node int) {
			of.nodes[node].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.Now()}}
		}
		notReady(4)
		f.declare()
		<-time.After(time.Minute)
		f.run(2*time.Minute, 0)
		before := len(f.tainted["c0000"])
		f.Expect(before).To(BeNumerically(">", 0))
		notReady(3)
		f.run(20*time.Minute, 0)
		f.Expect(len(f.tainted["c0000"])).To(BeNumerically("<=", before+1))
		of.nodes[3].Status.Conditions[0].Status = corev1.ConditionTrue
		f.run(20*time.Minute, 0)
		f.Expect(f.ended).To(HaveKey("c0000"))
	})
}

// Nodes that look for harm at the same moment, again and again, do not keep each other from their turns.
func TestNodesLookForHarmAtTheSameMoment(t *testing.T) {
	inUse(t, func(t *testing.T) {
		f := newThousand(t, 1, func(int) int { return 2 }, nil)
		f.declare()
		for len(f.tainted["c0000"]) == 0 {
			f.run(time.Second, 0)
		}
		<-time.After(time.Minute)
		of, again := f.servers["c0000"], time.Duration(0)
		done, waits := of.nodes[0].Name, of.nodes[1].Name
		if f.tainted["c0000"][waits] {
			done, waits = waits, done
		}
		of.listsPods = func() {
			of.listsPods = nil
			again, _ = f.lookAt("c0000", waits)
		}
		next, err := f.lookAt("c0000", done)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(of.listsPods).To(BeNil(), "both have looked")
		f.Expect(f.soft["c0000"]).To(BeEmpty())
		f.Expect(again).To(And(BeNumerically(">", 0), BeNumerically("<", next)), "not at the next look of the other Node")
		<-time.After(again)
		_, err = f.lookAt("c0000", waits)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(f.soft["c0000"]).To(HaveKey(waits))
	})
}

// A label that the operator does not allow has no effect, and an Event says so.
func TestSettingsThatAreNotAllowed(t *testing.T) {
	inUse(t, func(t *testing.T) {
		f := newThousand(t, 1, func(int) int { return 2 }, nil)
		f.NoExecute.PerCluster = inherit.PerClusterGentler
		f.shelf.clusters[0].Labels[inherit.NoExecuteRateLabel] = "600"
		f.declare()
		f.run(30*time.Second, 0)
		f.Expect(len(f.tainted["c0000"])).To(Equal(1))
		f.Expect(f.events.take()).To(ContainElement("Warning NotInherited Cluster/c0000: label heirloom.dev/no-execute-rate of Cluster c0000: the operator does not allow it (--per-cluster-no-execute=gentler)"))
	})
}

// A halt is reported until the roll-out goes on, is paused by hand, or is over because nobody declares the taint any more.
func TestTheEndOfAHalt(t *testing.T) {
	for name, end := range map[string]func(f *thousand){
		"its cause is gone": func(f *thousand) { f.servers["c0000"].nodes[4].Status.Conditions[0].Status = corev1.ConditionTrue },
		"it is paused":      func(f *thousand) { f.shelf.clusters[0].Labels[inherit.NoExecuteLabel] = inherit.NoExecutePaused },
		"nobody declares it": func(f *thousand) {
			f.shelf.pools["c0000"].Spec.Template.Annotations = nil
			f.looksAtAll(time.Now())
		},
	} {
		t.Run(name, func(t *testing.T) {
			inUse(t, func(t *testing.T) {
				f := newThousand(t, 1, func(int) int { return 5 }, nil)
				f.declare()
				f.run(30*time.Second, 0)
				f.servers["c0000"].nodes[4].Status.Conditions = []corev1.NodeCondition{{
					Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.Now(),
				}}
				f.run(2*time.Minute, 0)
				f.Expect(f.samples()).To(ContainElement(`no_execute_halted{cluster_name="c0000",cluster_namespace="ns"} 1`))
				end(f)
				f.run(10*time.Minute, 0)
				f.notCounted("no_execute_halted")
			})
		})
	}
}

// A new leader that looks first at a Node that has had its taint for longer than the soak does not forget the halt. Harm during the soak
// holds the next wave.
func TestANewLeaderKnowsTheHalt(t *testing.T) {
	inUse(t, func(t *testing.T) {
		f := newThousand(t, 2, func(int) int { return 3 }, map[int]string{0: "1"})
		f.declare()
		for len(f.tainted["c0000"]) == 0 {
			f.run(time.Second, 0)
		}
		harm := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.Now()}
		of := f.servers["c0000"]
		of.pods = append(of.pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "late"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{harm}}})
		f.run(10*time.Minute, 0)
		for range 3 {
			f.newLeader(time.Now())
			for name := range f.tainted["c0000"] { // first
				f.enqueue(time.Now().Add(-time.Second), "c0000", name)
			}
			f.run(10*time.Minute, 0)
		}
		f.Expect(len(f.tainted["c0000"])).To(Equal(1))
		f.Expect(f.soft["c0000"]).To(BeEmpty())
		f.Expect(f.began).NotTo(HaveKey("c0001"))
		f.Expect(f.samples()).To(ContainElement(HavePrefix(`no_execute_halted{cluster_name="c0000"`)))
	})
}
