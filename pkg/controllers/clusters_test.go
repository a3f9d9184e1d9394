// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/heirloom-dev/heirloom/pkg/controllers"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// way is a way to admit Nodes that notes its calls. It gets no answer from a Cluster with the name silent.
type way struct {
	name string
	*journal
}

func (w *way) Ensure(ctx context.Context, _ client.Client, cluster webhook.Identity) (bool, error) {
	w.note("ensure " + w.name + " in " + cluster.String())
	if cluster.Name == "silent" {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return false, nil
}

func (w *way) Remove(_ context.Context, _ client.Client, cluster webhook.Identity) (bool, error) {
	w.note("remove " + w.name + " from " + cluster.String())
	return false, nil
}

// admitted makes the loop admit the Nodes of Clusters by webhook, which is the default, or by MutatingAdmissionPolicy.
func (l *loop) admitted() {
	l.Admission.Default = inherit.AdmitByWebhook
	l.Admission.Ways = map[string]workload.Way{
		inherit.AdmitByWebhook: &way{"webhook", l.asked}, inherit.AdmitByPolicy: &way{"policy", l.asked},
	}
}

// The loop sets up one way to admit Nodes and removes the others.
func TestOneWayToAdmitNodesIsSetUp(t *testing.T) {
	none := []string{"remove webhook from ns/c", "remove policy from ns/c"}
	label := func(key, value string) func(*loop, *clusterv1.Cluster) {
		return func(_ *loop, c *clusterv1.Cluster) { c.Labels = map[string]string{key: value} }
	}
	for _, tc := range []struct {
		name  string
		setUp func(*loop, *clusterv1.Cluster)
		asked []string
	}{
		{"the default", func(*loop, *clusterv1.Cluster) {}, []string{"ensure webhook in ns/c", "remove policy from ns/c"}},
		{"what the Cluster's label says", label(inherit.AdmissionLabel, "policy"), []string{"ensure policy in ns/c", "remove webhook from ns/c"}},
		{"none where the label says so", label(inherit.AdmissionLabel, "none"), none},
		{"none for a Cluster with the label heirloom.dev/ignore", label(inherit.IgnoreLabel, ""), none},
		{"none for a Cluster that is only observed", label(inherit.ModeLabel, string(inherit.Observe)), none},
		{"none for a Cluster that is not enrolled", func(l *loop, _ *clusterv1.Cluster) { l.policy.OnlyLabeled = true }, none},
		{"none for a Cluster that is being deleted", func(_ *loop, c *clusterv1.Cluster) { c.Finalizers = []string{"cluster.cluster.x-k8s.io"} }, none},
		{"none for the management cluster", func(l *loop, _ *clusterv1.Cluster) { l.ManagementCluster = key("c") }, none},
		{"nothing changes for a paused Cluster", func(_ *loop, c *clusterv1.Cluster) { c.Spec.Paused = new(true) }, nil},
		{"nothing is asked where there are no ways", func(l *loop, _ *clusterv1.Cluster) { l.Admission.Ways = nil }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cluster := theCluster()
			l := newLoop(t, cluster)
			l.connect("c")
			l.admitted()
			l.change(cluster, func() { tc.setUp(l, cluster) })
			if len(cluster.Finalizers) > 0 {
				l.delete(cluster)
			}
			l.Expect(l.seeWorkload(key("c"))).To(Succeed())
			l.Expect(l.asked.take()).To(Equal(tc.asked))
			if l.ManagementCluster == (client.ObjectKey{}) {
				l.Expect(l.workloads.watched.take()).To(Equal([]string{"c: heirloom-nodes"}), "its Nodes are watched anyway")
			}
		})
	}
}

// A Cluster without a connection waits for the connection, and is counted. After any other error the loop tries again.
func TestClustersAreCounted(t *testing.T) {
	d := &clusterv1.Cluster{ObjectMeta: named("d")}
	l := newLoop(t, theCluster(), d)
	l.connect("c")
	l.admitted()
	l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	l.asked.take()
	l.Expect(l.seeWorkload(key("d"))).To(Succeed())
	l.counted(`workload_clusters{state="connected"} 1`, `workload_clusters{state="disconnected"} 1`)
	l.workloads.broken[key("c")] = errors.New("no way")
	l.Expect(l.seeWorkload(key("c"))).To(MatchError("watching the Nodes of the workload cluster: no way"))
	l.counted(`workload_clusters{state="connected"} 0`, `workload_clusters{state="disconnected"} 2`)
	l.delete(d)
	l.Expect(l.seeWorkload(key("d"))).To(Succeed())
	l.counted(`workload_clusters{state="connected"} 0`, `workload_clusters{state="disconnected"} 1`)

	delete(l.workloads.broken, key("c"))
	l.workloads.brokenUncached = errors.New("no client")
	l.Expect(l.seeWorkload(key("c"))).To(MatchError("reaching the workload cluster: no client"))
	l.workloads.brokenUncached = clustercache.ErrClusterNotConnected
	l.Expect(l.seeWorkload(key("c"))).To(Succeed(), "the connection triggers the next look")
	l.broken["Cluster"] = errors.New("no cache")
	l.Expect(l.seeWorkload(key("c"))).To(MatchError(l.broken["Cluster"]))
	l.Expect(l.asked.take()).To(BeEmpty())
	l.told()
}

// Clusters that do not answer do not hold up the others, at any number. The loop waits half a minute for each at most.
func TestWorkloadClustersWaitForNoOther(t *testing.T) {
	inUse(t, func(t *testing.T) {
		l := newLoop(t, theCluster(), &clusterv1.Cluster{ObjectMeta: named("silent")})
		l.connect("c")
		l.connect("silent")
		l.admitted()
		l.running()
		began, ended := time.Now(), make(chan struct{})
		go func() {
			defer close(ended)
			l.Expect(l.seeWorkload(key("silent"))).To(MatchError(context.DeadlineExceeded))
		}()
		synctest.Wait()
		l.Expect(l.seeWorkload(key("c"))).To(Succeed())
		l.Expect(time.Since(began)).To(BeZero())
		<-ended
		l.Expect(time.Since(began)).To(Equal(30 * time.Second))
	})
}

// No event reports a Node that was deleted while there was no connection, so each new connection makes the loop check the Nodes it
// remembers. It forgets the Nodes of a deleted Cluster.
func TestNodesDeletedWhileDisconnectedAreForgotten(t *testing.T) {
	for _, gone := range []string{"the Node", "the Cluster"} {
		l := newLoop(t, theCluster(), machineDeployment(), machineSet(), evicting("n0", "MachineSet/ms"), evicting("n1", "MachineSet/ms"))
		server := l.connect("c", node("n0"), node("n1"))
		l.NoExecute.Rate = 1
		for _, name := range []string{"n0", "n1"} {
			l.Expect(l.lookAt("c", name)).Error().NotTo(HaveOccurred())
		}
		l.counted("waiting_nodes 1")
		if gone == "the Cluster" {
			l.delete(theCluster())
			l.Expect(l.seeWorkload(key("c"))).To(Succeed())
			l.counted(noneWaits)
			continue
		}
		l.workloads.caches[key("c")] = newInformers(l.server.Scheme())
		l.start()
		l.Expect(server.Delete(t.Context(), node("n1"))).To(Succeed())
		l.workloads.connected <- event.GenericEvent{Object: theCluster()}
		l.eventually(l.samples).Should(ContainElement(noneWaits))
	}
}

// As soon as another instance has a Cluster, this instance writes no Node of it, even with a stale cache, and forgets it, also if it still
// looks at a Node. When the Cluster comes back, it counts again.
func TestAClusterOfAnotherInstanceIsForgotten(t *testing.T) {
	cluster, n0, n1, ignored := theCluster(), evicting("n0", "MachineSet/ms"), evicting("n1", "MachineSet/ms"), nodeMachine("n2")
	ignored.Labels[inherit.IgnoreLabel] = ""
	for _, object := range []client.Object{cluster, n0, n1, ignored} {
		object.SetLabels(with(object.GetLabels(), clusterv1.WatchLabel, "ours"))
	}
	l := newLoop(t, cluster, machineDeployment(), machineSet(), n0, n1, ignored)
	l.connect("c", node("n0"), node("n1"), node("n2"))
	l.admitted()
	l.policy.WatchFilter, l.NoExecute.Rate = "ours", 1
	looks := func() {
		l.t.Helper()
		for _, name := range []string{"n0", "n1", "n2"} {
			l.Expect(l.lookAt("c", name)).Error().NotTo(HaveOccurred())
		}
	}
	handled := func() {
		l.t.Helper()
		l.Expect(l.seeWorkload(key("c"))).To(Succeed())
		looks()
		l.counted("waiting_nodes 1", `skipped_nodes{cluster_name="c",cluster_namespace="ns"} 1`, `workload_clusters{state="connected"} 1`)
		l.Expect(l.asked.take()).NotTo(BeEmpty())
	}
	handled()
	l.wrote("in c: patches Node/n0", "in c: patches Node/n1")

	l.lag(cluster)
	l.change(n0, func() { n0.Labels[pool] = "b" })
	l.change(cluster, func() { cluster.Labels[clusterv1.WatchLabel] = "theirs" })
	looks()
	delete(l.stale, "Cluster/c")
	for _, look := range []func(){func() { l.Expect(l.seeWorkload(key("c"))).To(Succeed()) }, looks} {
		look()
		l.counted(noneWaits)
		l.notCounted("no_execute_")
		l.notCounted("skipped_nodes")
	}
	l.counted(`workload_clusters{state="connected"} 0`, `workload_clusters{state="disconnected"} 0`)
	l.Expect(l.asked.take()).To(BeEmpty(), "the other instance admits its Nodes")
	l.wrote()

	l.change(cluster, func() { cluster.Labels[clusterv1.WatchLabel] = "ours" })
	handled()
	l.wrote("in c: patches Node/n0")
}

// An Event on the Cluster reports a kubeconfig that is refused, if the Cluster exists.
func TestRefusedKubeconfigsAreReported(t *testing.T) {
	l := newLoop(t, theCluster())
	refused := controllers.KubeconfigRefused(l.Client, l.Recorder)
	refused(t.Context(), key("c"), errors.New("it names a file"))
	refused(t.Context(), key("gone"), errors.New("it names a file"))
	l.Expect(l.events.take()).To(ConsistOf("Warning KubeconfigRefused Cluster/c: The kubeconfig in the Secret c-kubeconfig is refused, " +
		"so Nodes of the workload cluster inherit nothing: it names a file"))
}
