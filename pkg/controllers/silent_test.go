// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/heirloom-dev/heirloom/pkg/controllers"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// Twenty clusters of twelve Nodes each do not answer, ten of which are asked about at a time.
const manySilent, theirNodes, theirShare = 20, 12, 10

// silence is what clusters answer until it is over: nothing.
type silence struct {
	asked  *journal
	over   sync.Once
	broken chan struct{}
}

// keep asks for something and waits until the silence is broken.
func (s *silence) keep(what string) {
	s.asked.note(what)
	<-s.broken
}

func newSilence() *silence { return &silence{asked: &journal{}, broken: make(chan struct{})} }

func (s *silence) end() { s.over.Do(func() { close(s.broken) }) }

// mute is a cluster that answers a GET only once the silence is broken.
type mute struct {
	client.Client
	*silence
}

func (s mute) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	s.keep(key.Name)
	return s.Client.Get(ctx, key, into, options...)
}

// silent makes a workload cluster one that does not answer.
func (l *loop) silent(name string, s *silence) {
	l.t.Helper()
	l.connect(name)
	l.workloads.clients[key(name)] = mute{Client: l.workloads.clients[key(name)], silence: s}
}

// ask makes the running loop look at Nodes.
func (l *loop) ask(requests ...controllers.NodeRequest) {
	l.t.Helper()
	nodes, ok := l.running().named("node").(interface {
		Watch(source source.TypedSource[controllers.NodeRequest]) error
	})
	l.Expect(ok).To(BeTrue())
	l.Expect(nodes.Watch(source.TypedFunc[controllers.NodeRequest](func(_ context.Context, queue workqueue.TypedRateLimitingInterface[controllers.NodeRequest]) error {
		for _, req := range requests {
			queue.Add(req)
		}
		return nil
	}))).To(Succeed())
}

// reconciled counts what the workers of the controller of Nodes have done since the program began, with that result.
func reconciled(t *testing.T, result string) (n float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, sample := range family.GetMetric() {
			if name := label(sample, "controller"); (name == "node" || strings.HasPrefix(name, "node-")) && label(sample, "result") == result {
				n += sample.GetCounter().GetValue()
			}
		}
	}
	return n
}

func label(sample *dto.Metric, name string) string {
	for _, pair := range sample.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// However many clusters do not answer, and however many Nodes they have, those of another are handled. Each of them is asked
// about as many Nodes as its share, and nothing is done about the rest until one of these is answered.
func TestNodesWaitForNoOtherCluster(t *testing.T) {
	machines := []client.Object{theCluster(), machineSet()}
	var nodes []client.Object
	for n := range theirNodes {
		name := fmt.Sprint("n", n)
		machines, nodes = append(machines, nodeMachine(name)), append(nodes, node(name))
	}
	l := newLoop(t, machines...)
	l.Admission.Changes = l.admissions
	l.connect("c", nodes...)
	s := newSilence()
	var theirs, healthy []controllers.NodeRequest
	for n := range theirNodes {
		healthy = append(healthy, controllers.NodeRequest{Cluster: key("c"), Name: fmt.Sprint("n", n)})
	}
	for c := range manySilent {
		name := fmt.Sprint("silent-", c)
		l.silent(name, s)
		for n := range theirNodes {
			theirs = append(theirs, controllers.NodeRequest{Cluster: key(name), Name: fmt.Sprint(name, "/", n)})
		}
	}
	l.start()
	t.Cleanup(s.end)
	success, again := reconciled(t, "success"), reconciled(t, "requeue_after")
	l.ask(theirs...)
	l.eventually(s.asked.all).Should(HaveLen(manySilent*theirShare), "each has its share of requests that wait for an answer")
	l.ask(healthy...)
	l.eventually(l.writes.all).Should(HaveLen(theirNodes))
	l.eventually(func() float64 { return reconciled(t, "success") - success }).Should(BeEquivalentTo(theirNodes))

	l.Expect(s.asked.all()).To(HaveLen(manySilent * theirShare))
	l.Expect(reconciled(t, "requeue_after")-again).To(BeZero(), "those that wait are not looked at")
	for _, name := range l.writes.all() {
		l.Expect(name).To(HavePrefix("in c: "))
	}

	s.end()
	l.eventually(func() float64 { return reconciled(t, "success") - success }).Should(BeEquivalentTo(len(theirs) + len(healthy)))
	l.Expect(s.asked.all()).To(HaveLen(len(theirs)), "each was handled once")
	l.Expect(reconciled(t, "requeue_after") - again).To(BeZero())
}

// However many clusters do not answer, a Cluster that comes is reconciled, and all are when keys change.
func TestWorkloadClustersWaitForNoOther(t *testing.T) {
	l, webhook, _, asked := admitting(t, theCluster())
	s := newSilence()
	l.Admission.Changes = l.admissions
	l.Admission.Ways = map[string]workload.Way{workload.AdmitByWebhook: silentWay{webhook, s}}
	for c := range manySilent {
		cluster := theCluster()
		cluster.Name = fmt.Sprint("silent-", c)
		l.connect(cluster.Name)
		l.Expect(l.server.Create(t.Context(), cluster)).To(Succeed())
	}
	l.start()
	t.Cleanup(s.end)
	for c := range manySilent {
		l.workloads.connected <- event.GenericEvent{Object: &clusterv1.Cluster{ObjectMeta: named(fmt.Sprint("silent-", c))}}
	}
	l.eventually(s.asked.all).Should(HaveLen(manySilent))
	l.workloads.connected <- event.GenericEvent{Object: theCluster()}
	l.eventually(l.workloads.watched.all).Should(ContainElement("c: heirloom-nodes"))
	l.eventually(asked.all).Should(ConsistOf("ensure webhook in ns/c"))
	l.admissions <- event.GenericEvent{Object: theCluster()}
	l.eventually(asked.all).Should(ConsistOf("ensure webhook in ns/c", "ensure webhook in ns/c"))
	l.Expect(s.asked.all()).To(HaveLen(manySilent))

	s.end()
	l.eventually(s.asked.all).Should(HaveLen(2*manySilent), "each is reconciled with the new keys as well, once it has answered")
}

// silentWay is a way to admit Nodes for which a silent cluster is asked.
type silentWay struct {
	*way
	*silence
}

func (w silentWay) Ensure(ctx context.Context, server client.Client, cluster webhook.Identity) (bool, error) {
	if strings.HasPrefix(cluster.Name, "silent-") {
		w.keep(cluster.Name)
		return false, nil
	}
	return w.way.Ensure(ctx, server, cluster)
}
