// SPDX-License-Identifier: Apache-2.0

package resync_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
	"github.com/heirloom-dev/heirloom/pkg/resync"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// way is a way to admit Nodes that notes what it is asked for.
type way struct {
	name string
	*journal
	// err is what it answers; act is what it does in the workload cluster, too.
	err error
	act func(ctx context.Context, server client.Client) error
	// lacking is what the workload cluster lacks for it, lost why nobody knows that, and refused what a try is answered with.
	lacking       string
	lost, refused error
}

func (w *way) Lacking(client.Client) (string, error) { return w.lacking, w.lost }

func (w *way) Try(context.Context, client.Client) error {
	w.note("try " + w.name)
	return w.refused
}

func (w *way) Ensure(ctx context.Context, server client.Client, cluster webhook.Identity) error {
	return w.do(ctx, server, "ensure "+w.name+" in "+cluster.String())
}

func (w *way) Remove(ctx context.Context, server client.Client, cluster webhook.Identity) error {
	return w.do(ctx, server, "remove "+w.name+" from "+cluster.String())
}

func (w *way) do(ctx context.Context, server client.Client, what string) error {
	w.note(what)
	if w.act != nil {
		return errors.Join(w.err, w.act(ctx, server))
	}
	return w.err
}

// admitting is a loop that may admit the Nodes of a connected Cluster by webhook, which is the default, or by policy.
func admitting(t *testing.T, cluster *capi.Cluster) (l *loop, webhook, policy *way, asked *journal) {
	t.Helper()
	l, asked = newLoop(t, cluster), &journal{}
	l.own.Store(&client.ObjectKey{})
	webhook, policy = &way{name: "webhook", journal: asked}, &way{name: "policy", journal: asked}
	l.Admissions = resync.Admissions{Default: workload.AdmitByWebhook, Ways: map[string]resync.NodeAdmission{
		workload.AdmitByWebhook: webhook, workload.AdmitByPolicy: policy,
	}}
	l.connect("c")
	return l, webhook, policy, asked
}

// One way is set up, and the others are taken away.
func TestOneWayToAdmitNodesIsSetUp(t *testing.T) {
	webhook := []string{"ensure webhook in ns/c", "remove policy from ns/c"}
	policy := []string{"ensure policy in ns/c", "remove webhook from ns/c"}
	none := []string{"remove policy from ns/c", "remove webhook from ns/c"}
	for _, tc := range []struct {
		name  string
		setUp func(*loop, *capi.Cluster)
		asked []string
		told  []string
		// deleted says that the Cluster is deleted then.
		deleted bool
	}{
		{name: "the default", setUp: func(*loop, *capi.Cluster) {}, asked: webhook},
		{name: "what the Cluster's label says", setUp: func(_ *loop, c *capi.Cluster) { c.Labels = pairs(workload.AdmissionLabel + "=policy") }, asked: policy},
		{name: "none where the label says so", setUp: func(_ *loop, c *capi.Cluster) { c.Labels = pairs(workload.AdmissionLabel + "=none") }, asked: none},
		{
			name: "none where the label says what there is not", asked: none,
			setUp: func(_ *loop, c *capi.Cluster) { c.Labels = pairs(workload.AdmissionLabel + "=magic") },
			told:  []string{`Warning UnknownWorkloadAdmission Cluster/c: Label heirloom.dev/workload-admission: Nodes cannot be admitted by "magic"`},
		},
		{name: "none for a Cluster that is opted out", setUp: func(_ *loop, c *capi.Cluster) { c.Labels = pairs(inherit.IgnoreLabel) }, asked: none},
		{name: "none for a Cluster of another instance", setUp: func(l *loop, _ *capi.Cluster) { l.policy.WatchFilter = "another" }, asked: none},
		{name: "none for the management cluster, whose webhooks are installed with the program", setUp: func(l *loop, _ *capi.Cluster) { l.Chain.ManagementCluster = ownerchain.Always(key("c")) }, asked: none},
		{name: "none for a Cluster that is being deleted", asked: none, setUp: func(_ *loop, c *capi.Cluster) {
			c.Finalizers = []string{"cluster.cluster.x-k8s.io"}
		}, deleted: true},
		{name: "a paused Cluster keeps what it has", setUp: func(_ *loop, c *capi.Cluster) { c.Spec.Paused = true }},
		{name: "nothing is asked where there are no ways", setUp: func(l *loop, _ *capi.Cluster) { l.Admissions.Ways = nil }},
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

// What goes wrong with one way is told on the Cluster and tried again, and does not keep the other from being taken away.
func TestAWayThatFails(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", errors.New("no rights"))
	const event = "Warning WorkloadAdmissionFailed Cluster/c: Nodes are not admitted as they should be, the loop alone brings them what they inherit; admission by "
	for _, tc := range []struct {
		name            string
		webhook, policy error
		fails           error
		told            []string
	}{
		{name: "it cannot be set up", webhook: forbidden, fails: forbidden, told: []string{event + "webhook: "}},
		{name: "the other cannot be taken away", policy: errors.New("no answer"), fails: errors.New("no answer"), told: []string{event + "policy: no answer"}},
		{name: "whoever may not even look has not set it up", policy: forbidden},
		{name: "the connection broke", webhook: clustercache.ErrClusterNotConnected},
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
			l.Expect(asked.take()).To(HaveLen(2))
			l.told(tc.told...)
		})
	}
}

// Operators are told when an API server begins or ceases to ask about Nodes, and of nothing else that is written there.
func TestWhatBecomesOfAdmissionIsTold(t *testing.T) {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	apply := func(kind, apiVersion string) func(context.Context, client.Client) error {
		return func(ctx context.Context, server client.Client) error {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": "x", "namespace": "ns"}}}
			return server.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("heirloom"))
		}
	}
	for _, tc := range []struct {
		name string
		act  func(context.Context, client.Client) error
		told []string
	}{
		{name: "a configuration is written", act: apply("MutatingWebhookConfiguration", "admissionregistration.k8s.io/v1"), told: []string{
			"Normal WorkloadAdmissionRegistered Cluster/c: The workload cluster's API server now admits Nodes by webhook"}},
		{name: "parameters are written", act: apply("ConfigMap", "v1")},
		{name: "a configuration is deleted", act: func(ctx context.Context, server client.Client) error { return server.Delete(ctx, configuration) }, told: []string{
			"Normal WorkloadAdmissionRemoved Cluster/c: The workload cluster's API server no longer admits Nodes by webhook"}},
		{name: "parameters are deleted", act: func(ctx context.Context, server client.Client) error {
			return server.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "old"}})
		}},
		{name: "nothing is written", act: func(context.Context, client.Client) error { return nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, webhook, _, _ := admitting(t, theCluster())
			l.connect("c", configuration.DeepCopy(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "old"}})
			webhook.act = tc.act
			l.Expect(l.seeWorkload(key("c"))).To(Succeed())
			l.told(tc.told...)
		})
	}
}

// A kubeconfig that is refused is told on its Cluster, if that is there.
func TestAKubeconfigThatIsRefused(t *testing.T) {
	l := newLoop(t, theCluster())
	refused := resync.KubeconfigRefused(l.Client, l.Recorder)
	refused(t.Context(), key("c"), errors.New("it names a file"))
	refused(t.Context(), key("gone"), errors.New("it names a file"))
	l.Expect(l.events.take()).To(ConsistOf(And(HavePrefix("Warning KubeconfigRefused Cluster/c: "), HaveSuffix("it names a file"))))
}
