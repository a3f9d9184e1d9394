// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/heirloom-dev/heirloom/pkg/controllers"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// way is a fake way to admit Nodes that notes its calls.
type way struct {
	name string
	*journal
	// err is its answer, and changed reports whether the call changed an object.
	err     error
	changed bool
	// hangs is the beginning of the names of Clusters for which it gets no answer.
	hangs string
}

func (w *way) Ensure(ctx context.Context, _ client.Client, cluster webhook.Identity) (bool, error) {
	w.note("ensure " + w.name + " in " + cluster.String())
	if w.hangs != "" && strings.HasPrefix(cluster.Name, w.hangs) {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return w.changed, w.err
}

func (w *way) Remove(_ context.Context, _ client.Client, cluster webhook.Identity) (bool, error) {
	w.note("remove " + w.name + " from " + cluster.String())
	return w.changed, w.err
}

// admitted makes the loop admit the Nodes of Clusters by webhook, which is the default, or by MutatingAdmissionPolicy.
func (l *loop) admitted() (webhook, policy *way) {
	webhook, policy = &way{name: "webhook", journal: l.asked}, &way{name: "policy", journal: l.asked}
	l.Admission.Default = workload.AdmitByWebhook
	l.Admission.Ways = map[string]workload.Way{workload.AdmitByWebhook: webhook, workload.AdmitByPolicy: policy}
	return webhook, policy
}

// The loop sets up one way to admit Nodes and removes the others. An Event reports the result.
func TestOneWayToAdmitNodesIsSetUp(t *testing.T) {
	byWebhook := []string{"ensure webhook in ns/c", "remove policy from ns/c"}
	byPolicy := []string{"ensure policy in ns/c", "remove webhook from ns/c"}
	none := []string{"remove webhook from ns/c", "remove policy from ns/c"}
	broken := apierrors.NewBadRequest("no answer")
	label := func(key, value string) func(*loop, *clusterv1.Cluster) {
		return func(_ *loop, c *clusterv1.Cluster) { c.Labels = map[string]string{key: value} }
	}
	for name, tc := range map[string]struct {
		setUp           func(*loop, *clusterv1.Cluster)
		webhook, policy way
		asked, told     []string
		fails           error
	}{
		"the default": {asked: byWebhook},
		"the default, newly": {webhook: way{changed: true}, asked: byWebhook[:1],
			told: []string{"Normal WorkloadAdmissionRegistered Cluster/c: The workload cluster's API server now admits Nodes by webhook"}},
		"the default, in place of another": {policy: way{changed: true}, asked: byWebhook,
			told: []string{"Normal WorkloadAdmissionRemoved Cluster/c: The workload cluster's API server no longer admits Nodes by policy"}},
		"the default, with an error": {webhook: way{err: broken}, asked: byWebhook[:1], fails: broken,
			told: []string{"Warning WorkloadAdmissionFailed Cluster/c: "}},
		"the default, and another Heirloom's is left": {policy: way{err: webhook.ErrForeign}, asked: byWebhook},
		"what the Cluster's label says":               {setUp: label(workload.AdmissionLabel, "policy"), asked: byPolicy},
		"none where the label says so":                {setUp: label(workload.AdmissionLabel, "none"), asked: none},
		"none where the label says what there is not": {setUp: label(workload.AdmissionLabel, "magic"), asked: none,
			told: []string{`Warning UnknownWorkloadAdmission Cluster/c: Label heirloom.dev/workload-admission: admission by "magic" is not available`}},
		"none for a Cluster that is opted out":                     {setUp: label(inherit.IgnoreLabel, ""), asked: none},
		"none for a Cluster that is only observed":                 {setUp: label(inherit.ModeLabel, string(inherit.Observe)), asked: none},
		"none for a Cluster that is not enrolled":                  {setUp: func(l *loop, _ *clusterv1.Cluster) { l.policy.OnlyLabelled = true }, asked: none},
		"none for a Cluster that is being deleted":                 {setUp: func(_ *loop, c *clusterv1.Cluster) { c.Finalizers = []string{"cluster.cluster.x-k8s.io"} }, asked: none},
		"none for the management cluster":                          {setUp: func(l *loop, _ *clusterv1.Cluster) { l.ManagementCluster = key("c") }, asked: none},
		"a Cluster of another instance keeps what that has set up": {setUp: func(l *loop, _ *clusterv1.Cluster) { l.policy.WatchFilter = "another" }},
		"a paused Cluster keeps what it has":                       {setUp: func(_ *loop, c *clusterv1.Cluster) { c.Spec.Paused = new(true) }},
		"nothing is asked where there are no ways":                 {setUp: func(l *loop, _ *clusterv1.Cluster) { l.Admission.Ways = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := theCluster()
			l := newLoop(t, cluster)
			l.connect("c")
			webhook, policy := l.admitted()
			webhook.changed, webhook.err, policy.changed, policy.err = tc.webhook.changed, tc.webhook.err, tc.policy.changed, tc.policy.err
			if tc.setUp != nil {
				l.change(cluster, func() { tc.setUp(l, cluster) })
			}
			if len(cluster.Finalizers) > 0 {
				l.delete(cluster)
			}
			if err := l.seeWorkload(key("c")); tc.fails == nil {
				l.Expect(err).NotTo(HaveOccurred())
			} else {
				l.Expect(err).To(MatchError(tc.fails))
			}
			l.Expect(l.asked.take()).To(Equal(tc.asked))
			l.told(tc.told...)
			if l.ManagementCluster == (client.ObjectKey{}) {
				l.Expect(l.workloads.watched.take()).To(Equal([]string{"c: heirloom-nodes"}), "its Nodes are watched anyway")
			}
			l.counted(`workload_clusters{state="connected"} 1`)
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
		webhook, _ := l.admitted()
		webhook.hangs = "silent"
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
func TestNodesThatWentWithoutAWordAreForgotten(t *testing.T) {
	for _, gone := range []string{"the Node", "the Cluster"} {
		l := newLoop(t, theCluster(), machineDeployment(), machineSet(), evicting("n0", "MachineSet/ms"), evicting("n1", "MachineSet/ms"))
		server := l.connect("c", node("n0"), node("n1"))
		l.NoExecuteRate = 1
		for _, name := range []string{"n0", "n1"} {
			l.Expect(l.lookAt("c", name)).Error().NotTo(HaveOccurred())
		}
		l.counted("no_execute_waiting_nodes 1")
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

// An Event on the Cluster reports a kubeconfig that is refused, if the Cluster exists.
func TestAKubeconfigThatIsRefused(t *testing.T) {
	l := newLoop(t, theCluster())
	refused := controllers.KubeconfigRefused(l.Client, l.Recorder)
	refused(t.Context(), key("c"), errors.New("it names a file"))
	refused(t.Context(), key("gone"), errors.New("it names a file"))
	l.Expect(l.events.take()).To(ConsistOf("Warning KubeconfigRefused Cluster/c: The kubeconfig in the Secret c-kubeconfig is refused, " +
		"so Nodes of the workload cluster inherit nothing: it names a file"))
}
