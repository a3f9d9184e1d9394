// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/controllers"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// forbidden is what an API server answers to a user without rights.
var forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", errors.New("no rights"))

// way is a way to admit Nodes that notes what it is asked for.
type way struct {
	name string
	*journal
	// err is what it answers, and changed whether that changed something.
	err     error
	changed bool
}

func (w *way) Ensure(_ context.Context, _ client.Client, cluster webhook.Identity) (bool, error) {
	w.note("ensure " + w.name + " in " + cluster.String())
	return w.changed, w.err
}

func (w *way) Remove(_ context.Context, _ client.Client, cluster webhook.Identity) (bool, error) {
	w.note("remove " + w.name + " from " + cluster.String())
	return w.changed, w.err
}

// admitting is a loop that may admit the Nodes of a connected Cluster by webhook, which is the default, or by policy.
func admitting(t *testing.T, cluster *clusterv1.Cluster) (l *loop, webhook, policy *way, asked *journal) {
	t.Helper()
	l, asked = newLoop(t, cluster), &journal{}
	l.own.Store(&client.ObjectKey{})
	webhook, policy = &way{name: "webhook", journal: asked}, &way{name: "policy", journal: asked}
	l.Admission = &workload.Admission{Default: workload.AdmitByWebhook, Ways: map[string]workload.Way{
		workload.AdmitByWebhook: webhook, workload.AdmitByPolicy: policy,
	}}
	l.connect("c")
	return l, webhook, policy, asked
}

// One way is set up, and the others are taken away.
func TestOneWayToAdmitNodesIsSetUp(t *testing.T) {
	webhook := []string{"ensure webhook in ns/c", "remove policy from ns/c"}
	policy := []string{"ensure policy in ns/c", "remove webhook from ns/c"}
	none := []string{"remove webhook from ns/c", "remove policy from ns/c"}
	for _, tc := range []struct {
		name  string
		setUp func(*loop, *clusterv1.Cluster)
		asked []string
		told  []string
		// deleted says that the Cluster is deleted then.
		deleted bool
	}{
		{name: "the default", setUp: func(*loop, *clusterv1.Cluster) {}, asked: webhook},
		{name: "what the Cluster's label says", setUp: func(_ *loop, c *clusterv1.Cluster) { c.Labels = pairs(workload.AdmissionLabel + "=policy") }, asked: policy},
		{name: "none where the label says so", setUp: func(_ *loop, c *clusterv1.Cluster) { c.Labels = pairs(workload.AdmissionLabel + "=none") }, asked: none},
		{
			name: "none where the label says what there is not", asked: none,
			setUp: func(_ *loop, c *clusterv1.Cluster) { c.Labels = pairs(workload.AdmissionLabel + "=magic") },
			told:  []string{`Warning UnknownWorkloadAdmission Cluster/c: Label heirloom.dev/workload-admission: Nodes cannot be admitted by "magic"`},
		},
		{name: "none for a Cluster that is opted out", setUp: func(_ *loop, c *clusterv1.Cluster) { c.Labels = pairs(inherit.IgnoreLabel) }, asked: none},
		{name: "a Cluster of another instance keeps what that has set up", setUp: func(l *loop, _ *clusterv1.Cluster) { l.policy.WatchFilter = "another" }},
		{name: "none for the management cluster, whose webhooks are installed with the program", setUp: func(l *loop, _ *clusterv1.Cluster) { l.Chain.ManagementCluster = owners.Always(key("c")) }, asked: none},
		{name: "none for a Cluster that is being deleted", asked: none, setUp: func(_ *loop, c *clusterv1.Cluster) {
			c.Finalizers = []string{"cluster.cluster.x-k8s.io"}
		}, deleted: true},
		{name: "a paused Cluster keeps what it has", setUp: func(_ *loop, c *clusterv1.Cluster) { c.Spec.Paused = new(true) }},
		{name: "nothing is asked where there are no ways", setUp: func(l *loop, _ *clusterv1.Cluster) { l.Admission.Ways = nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cluster := theCluster()
			l, _, _, asked := admitting(t, cluster)
			l.change(cluster, func() { tc.setUp(l, cluster) })
			if tc.deleted {
				l.Expect(l.server.Delete(t.Context(), cluster)).To(Succeed())
			}
			l.Expect(l.seeWorkload(key("c"))).To(Succeed())
			l.Expect(asked.take()).To(Equal(tc.asked))
			l.told(tc.told...)
			l.Expect(l.workloads.watched.take()).To(Equal([]string{"c: heirloom-nodes"}), "its Nodes are watched all the same")
		})
	}
}

// A Cluster whose connection is down waits for it, and is counted.
func TestClustersAreCounted(t *testing.T) {
	d := theCluster()
	d.Name = "d"
	l, _, _, asked := admitting(t, theCluster())
	l.Expect(l.server.Create(t.Context(), d)).To(Succeed())
	l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	asked.take()
	l.Expect(l.seeWorkload(client.ObjectKeyFromObject(d))).To(Succeed())
	l.counted(`workload_clusters{state="connected"} 1`, `workload_clusters{state="disconnected"} 1`)
	l.Expect(asked.take()).To(BeEmpty())

	delete(l.workloads.clients, key("c"))
	l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	l.counted(`workload_clusters{state="connected"} 0`, `workload_clusters{state="disconnected"} 2`)
	l.Expect(l.server.Delete(t.Context(), d)).To(Succeed())
	l.Expect(l.seeWorkload(client.ObjectKeyFromObject(d))).To(Succeed())
	l.counted(`workload_clusters{state="connected"} 0`, `workload_clusters{state="disconnected"} 1`)
	l.told()
}

func TestAWorkloadClusterThatCannotBeSeenToIsTriedAgain(t *testing.T) {
	l, _, _, asked := admitting(t, theCluster())
	l.workloads.broken = errors.New("no way")
	l.Expect(l.seeWorkload(key("c"))).To(MatchError("watching the Nodes of the workload cluster: no way"))
	l.counted(`workload_clusters{state="disconnected"} 1`)
	l.workloads.broken = nil
	l.workloads.brokenUncached = errors.New("no client")
	l.Expect(l.seeWorkload(key("c"))).To(MatchError("reaching the workload cluster: no client"))
	l.workloads.brokenUncached = clustercache.ErrClusterNotConnected
	l.Expect(l.seeWorkload(key("c"))).To(Succeed(), "the connection will wake it")
	l.broken.set("Cluster", errors.New("no cache"))
	l.Expect(l.seeWorkload(key("c"))).To(MatchError(l.broken.of("Cluster")))
	l.Expect(asked.take()).To(BeEmpty())
	l.told()
}

// What goes wrong with one way is told on the Cluster and tried again. The other is taken away only once the one is there.
func TestAWayThatFails(t *testing.T) {
	const event = "Warning WorkloadAdmissionFailed Cluster/c: Nodes are not admitted as they should be, so the loop applies what they inherit; admission by "
	for _, tc := range []struct {
		name            string
		webhook, policy error
		fails           error
		asked           int
		told            []string
	}{
		{name: "it cannot be set up", webhook: forbidden, fails: forbidden, asked: 1, told: []string{event + "webhook: "}},
		{name: "the other cannot be taken away", policy: errors.New("no answer"), fails: errors.New("no answer"), asked: 2, told: []string{event + "policy: no answer"}},
		{name: "a user without the right to look has not set it up", policy: forbidden, asked: 2},
		{name: "the connection broke", webhook: clustercache.ErrClusterNotConnected, asked: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, webhook, policy, asked := admitting(t, theCluster())
			webhook.err, policy.err = tc.webhook, tc.policy
			err := l.seeWorkload(key("c"))
			if tc.fails == nil {
				l.Expect(err).NotTo(HaveOccurred())
			} else {
				l.Expect(err).To(MatchError(ContainSubstring(tc.fails.Error())))
			}
			l.Expect(asked.take()).To(HaveLen(tc.asked))
			l.told(tc.told...)
		})
	}
}

// Operators are told when an API server begins or ceases to ask about Nodes, and of nothing else that is done there.
func TestWhatBecomesOfAdmissionIsTold(t *testing.T) {
	const registered = "Normal WorkloadAdmissionRegistered Cluster/c: The workload cluster's API server now admits Nodes by "
	const removed = "Normal WorkloadAdmissionRemoved Cluster/c: The workload cluster's API server no longer admits Nodes by "
	const failed = "Warning WorkloadAdmissionFailed Cluster/c: "
	for _, tc := range []struct {
		name            string
		webhook, policy way
		told            []string
	}{
		{name: "the one is set up", webhook: way{changed: true}, told: []string{registered + "webhook"}},
		{name: "it fails afterwards", webhook: way{changed: true, err: errors.New("no answer")}, told: []string{failed}},
		{name: "the other is taken away", policy: way{changed: true}, told: []string{removed + "policy"}},
		{name: "it fails, once Nodes are not admitted", policy: way{changed: true, err: errors.New("no answer")}, told: []string{failed}},
		{name: "it is refused, once Nodes are not admitted", policy: way{changed: true, err: forbidden}, told: []string{removed + "policy"}},
		{name: "the other is another Heirloom's", policy: way{err: webhook.ErrForeign}},
		{name: "nothing is written"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, webhook, policy, _ := admitting(t, theCluster())
			webhook.changed, webhook.err, policy.changed, policy.err = tc.webhook.changed, tc.webhook.err, tc.policy.changed, tc.policy.err
			err := l.seeWorkload(key("c"))
			l.Expect(err != nil).To(Equal(slices.Equal(tc.told, []string{failed})), "%v", err)
			l.told(tc.told...)
		})
	}
}

// A kubeconfig that is refused is told on its Cluster, if that is there.
func TestAKubeconfigThatIsRefused(t *testing.T) {
	l := newLoop(t, theCluster())
	refused := controllers.KubeconfigRefused(l.Client, l.Recorder)
	refused(t.Context(), key("c"), errors.New("it names a file"))
	refused(t.Context(), key("gone"), errors.New("it names a file"))
	l.Expect(l.events.take()).To(ConsistOf(And(HavePrefix("Warning KubeconfigRefused Cluster/c: "), HaveSuffix("it names a file"))))
}
