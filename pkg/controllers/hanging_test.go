// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/sim/fakeclient"
)

// poolOf returns a Cluster and its MachinePool, which declares these taints for a number of Nodes.
func poolOf(cluster client.ObjectKey, taints string, nodes int) []client.Object {
	mp, c := machinePool(), &clusterv1.Cluster{ObjectMeta: named(cluster.Name)}
	mp.Spec.ClusterName, mp.Labels[clusterv1.ClusterNameLabel] = cluster.Name, cluster.Name
	mp.Namespace, c.Namespace = cluster.Namespace, cluster.Namespace
	mp.Spec.Template.Annotations = map[string]string{taint.AlwaysAnnotation: taints}
	mp.Spec.ProviderIDList = nil
	for _, n := range nodesOf(cluster.Name, nodes) {
		mp.Spec.ProviderIDList = append(mp.Spec.ProviderIDList, n.(*corev1.Node).Spec.ProviderID) //nolint:forcetypeassert // see below
	}
	return []client.Object{mp, c}
}

// nodesOf returns a number of Nodes of a Cluster.
func nodesOf(cluster string, nodes int) (all []client.Object) {
	for i := range nodes {
		all = append(all, node(fmt.Sprint(cluster, "-", i)))
	}
	return all
}

// slowly connects a Cluster whose API server takes some time for a write, which it notes and does not carry out.
func (l *loop) slowly(cluster client.ObjectKey, nodes int, takes func() time.Duration) {
	l.workloads.clients[cluster] = interceptor.NewClient(fakeclient.New(nodesOf(cluster.Name, nodes)...), interceptor.Funcs{
		Patch: func(ctx context.Context, _ client.WithWatch, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
			l.writes.note(object.GetName())
			select {
			case <-ctx.Done():
				return fmt.Errorf("patching: %w", ctx.Err())
			case <-time.After(takes()):
				return nil
			}
		},
	})
}

// atOnce reconciles a number of Nodes of Cluster d at the same time. It returns the number of writes, and how long the other Nodes wait.
func (l *loop) atOnce(nodes int) (sent int, waits []time.Duration) {
	l.t.Helper()
	l.running()
	l.writes.take()
	var running sync.WaitGroup
	var mu sync.Mutex
	for _, n := range nodesOf("d", nodes) {
		running.Go(func() {
			again, err := l.lookAt("d", n.GetName())
			mu.Lock()
			defer mu.Unlock()
			if err == nil && again > 0 {
				waits = append(waits, again)
			}
		})
	}
	running.Wait()
	slices.Sort(waits)
	return len(l.writes.take()), waits
}

// A workload cluster has one worker until it has answered within a second, and then several workers for a few seconds. After an unanswered
// write it gets none for a while, each time for longer, and then gets one.
func TestSlots(t *testing.T) {
	inUse(t, func(t *testing.T) {
		takes := time.Second
		l := newLoop(t, poolOf(key("d"), "gpu:NoSchedule", 20)...)
		l.slowly(key("d"), 20, func() time.Duration { return takes })
		sends := func(nodes, want int, why string) []time.Duration {
			t.Helper()
			sent, waits := l.atOnce(nodes)
			l.Expect(sent).To(Equal(want), why)
			return waits
		}
		waits := sends(4, 1, "it has not answered yet")
		after := []time.Duration{102 * time.Millisecond, 104 * time.Millisecond, 106 * time.Millisecond}
		l.Expect(waits).To(Equal(after), "they come again one after the other")
		sends(20, 16, "it has answered")
		<-time.After(5 * time.Second)
		sends(3, 1, "its last answer is long ago")
		<-time.After(5 * time.Second)
		takes = 4900 * time.Millisecond
		sends(3, 1, "and an answer just in time does not count")
		sends(3, 1, "and an answer just in time does not count")

		takes = time.Hour
		sends(3, 1, "it hangs")
		for _, pause := range []time.Duration{5, 10, 20, 40, 60, 60} {
			pause *= time.Second
			l.Expect(sends(2, 0, "it gets a pause")[0]).To(BeNumerically("~", pause, 100*time.Millisecond))
			<-time.After(pause)
			sends(3, 1, "the pause is over")
		}
		<-time.After(time.Minute)
		takes = 0
		sends(1, 1, "it answers again")
		takes = time.Second
		sends(20, 16, "it has answered")
	})
}

// An answer to a probe opens all slots of a workload cluster until the next probe has failed, but not before a pause is over.
func TestProbesOpenSlots(t *testing.T) {
	inUse(t, func(t *testing.T) {
		takes := time.Second
		l := newLoop(t, poolOf(key("d"), "gpu:NoSchedule", 20)...)
		l.slowly(key("d"), 20, func() time.Duration { return takes })
		for _, tc := range []struct {
			ago  time.Duration
			sent int
		}{{14 * time.Second, 16}, {15 * time.Second, 1}, {0, 16}} {
			<-time.After(time.Minute)
			l.workloads.probed = time.Now().Add(-tc.ago)
			sent, _ := l.atOnce(20)
			l.Expect(sent).To(Equal(tc.sent), "%s ago", tc.ago)
		}
		takes = time.Hour
		for _, sent := range []int{16, 0} {
			l.workloads.probed = time.Now()
			got, _ := l.atOnce(20)
			l.Expect(got).To(Equal(sent), "it hangs")
		}
	})
}

// fakes is the number of Nodes that a hostile workload cluster makes up.
const fakes = 300

// makesUp connects Cluster d with made-up Nodes, and reconciles all of them.
func (l *loop) makesUp() {
	l.t.Helper()
	made := nodesOf("d", fakes)
	server := l.connect("d", made...)
	for i, n := range made {
		if i%100 == 99 { // the live decisions of a Cluster are limited
			<-time.After(time.Second)
		}
		l.Expect(l.lookAt("d", n.GetName())).Error().NotTo(HaveOccurred())
	}
	n := node("d-0")
	l.Expect(server.Get(l.t.Context(), client.ObjectKeyFromObject(n), n)).To(Succeed())
	l.Expect(n.Labels).NotTo(BeEmpty(), "the Nodes inherit")
}

// Nodes that wait for a NoExecute taint do not hold up the Nodes of another Cluster, at any number.
func TestFakeNodesTakeNobodysTurn(t *testing.T) {
	inUse(t, func(t *testing.T) {
		l := evictions(t, 2, append(poolOf(key("d"), "drain:NoExecute", fakes), machineDeployment(), machineSet())...)
		l.makesUp()
		l.counted(fmt.Sprint("waiting_nodes ", fakes)) // until the loop has read the Nodes of all Clusters
		<-time.After(time.Second)
		l.looks("n0", all, 0)
		l.looks("n1", withoutDrain, time.Minute)
		<-time.After(time.Minute)
		l.looks("n1", all, 0)
	})
}

// The records of a Cluster's Nodes do not push out the records of another Cluster: a kubelet that removes its record keeps no entries.
func TestFakeNodesPushNoRecordOut(t *testing.T) {
	inUse(t, func(t *testing.T) {
		m, n := nodeMachine("m"), node("m")
		l := newLoop(t, append(poolOf(key("d"), "gpu:NoSchedule", fakes), theCluster(), machineSet(), m, n)...)
		l.Expect(l.seeNode("m")).To(Succeed())
		l.makesUp()
		l.change(n, func() { delete(n.Annotations, "heirloom.dev/record-from-machine") })
		l.change(m, loseAll(m))
		l.Expect(l.seeNode("m")).To(Succeed())
		l.Expect(l.taintsOf("m")).To(BeEmpty())
	})
}
