// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// What a tarpit does instead of being an API server. Of the last kind, all that is read is answered.
const (
	refuses = iota
	saysNothing
	onlyShakesHands
	answersHalf
	listsNoNodes
	writesNothing
	kinds
)

// Forty tarpits, of which 25 are connected and have six Nodes each. One write of a Node of each hangs at a time, and one of what admits Nodes.
const (
	allTarpits, theirNodes                        = 40, 6
	writingTarpits, listingTarpits, silentTarpits = 25, 3, 9
)

// tarpits are API servers that hang until over is closed.
type tarpits struct {
	over chan struct{}
	// waiting is how many requests hang now, by kind, and caught how many have; most is how many writes have at a time.
	waiting, caught [kinds]atomic.Int64
	most            atomic.Int64
	// behind is what those ask that answer something.
	behind http.Handler
}

func newTarpits(t *testing.T, behind *clientrest.Config) *tarpits {
	t.Helper()
	Expect := NewWithT(t).Expect
	host, err := url.Parse(behind.Host)
	Expect(err).NotTo(HaveOccurred())
	proxy := httputil.NewSingleHostReverseProxy(host)
	proxy.FlushInterval = -1
	proxy.Transport, err = clientrest.TransportFor(behind)
	Expect(err).NotTo(HaveOccurred())
	p := &tarpits{over: make(chan struct{}), behind: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Authorization") // the proxy is the administrator
		defer func() {
			if broken := recover(); broken != nil && broken != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
				panic(broken)
			}
		}() // a watch that is broken off
		proxy.ServeHTTP(w, r)
	})}
	return p
}

// dig returns the address of another tarpit.
func (p *tarpits) dig(t *testing.T, kind int) string {
	t.Helper()
	switch kind {
	case refuses, saysNothing:
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		if kind == refuses {
			_ = listener.Close()
		} else {
			t.Cleanup(func() { _ = listener.Close() })
			go p.swallow(listener)
		}
		return "https://" + listener.Addr().String()
	default:
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.answer(kind, w, r) }))
		t.Cleanup(server.Close)
		return server.URL
	}
}

func (p *tarpits) swallow(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer connection.Close()
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				_, _ = io.Copy(io.Discard, connection)
			}()
			p.hang(saysNothing, gone)
		}()
	}
}

func (p *tarpits) answer(kind int, w http.ResponseWriter, r *http.Request) {
	read := r.Method == http.MethodGet
	if kind == listsNoNodes && r.URL.Path != "/api/v1/nodes" || kind == writesNothing && read {
		ctx, cancel := context.WithCancel(r.Context()) // a server that is closed waits for its requests, so watches have to end
		defer cancel()
		go func() {
			select {
			case <-p.over:
				cancel()
			case <-ctx.Done():
			}
		}()
		p.behind.ServeHTTP(w, r.WithContext(ctx))
		return
	}
	_, _ = io.Copy(io.Discard, r.Body) // only then is it known when the client has gone
	if kind == answersHalf {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // a client that has gone hears nothing
	}
	p.hang(kind, r.Context().Done())
}

func (p *tarpits) hang(kind int, gone <-chan struct{}) {
	p.caught[kind].Add(1)
	now := p.waiting[kind].Add(1)
	for most := p.most.Load(); kind == writesNothing && now > most && !p.most.CompareAndSwap(most, now); most = p.most.Load() {
	}
	defer p.waiting[kind].Add(-1)
	select {
	case <-gone:
	case <-p.over:
	}
}

// sink makes a Cluster of each tarpit, with Machines for those Nodes.
func (s *scene) sink(p *tarpits, namespace string, nodes []string) {
	s.t.Helper()
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	s.t.Cleanup(func() {
		in := client.InNamespace(namespace)
		for _, object := range []client.Object{&clusterv1.Machine{}, &clusterv1.Cluster{}, &corev1.Secret{}} {
			if err := s.Client.DeleteAllOf(context.WithoutCancel(s.ctx), object, in); err != nil {
				s.t.Errorf("forgetting a tarpit: %v", err)
			}
		}
	})
	for n := range allTarpits {
		kind := n % writesNothing
		if n >= allTarpits-writingTarpits {
			kind = writesNothing
		}
		cluster := stage.Cluster(namespace, fmt.Sprintf("%s-%d", namespace, n))
		s.create(cluster, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster.Name + "-kubeconfig"}, Type: clusterv1.ClusterSecretType,
			StringData: map[string]string{"value": fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x,
				clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}], users: [{name: u, user: {token: t}}],
				contexts: [{name: x, context: {cluster: c, user: u}}]}`, p.dig(s.t, kind))},
		})
		for _, name := range nodes {
			s.create(&clusterv1.Machine{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: namespace, Name: fmt.Sprintf("%s-%s", cluster.Name, name),
					Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name, "node.cluster.x-k8s.io/pool": "tar"},
				},
				Spec: clusterv1.MachineSpec{
					ClusterName: cluster.Name, ProviderID: stage.ProviderID(name), Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("bootstrap-data")},
					InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "FakeMachine", Name: "fake"},
				},
			})
		}
		before := cluster.DeepCopy()
		cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
		s.Expect(s.Client.Status().Patch(s.ctx, cluster, client.MergeFrom(before))).To(Succeed())
	}
}

// expectStuck waits until all hang, or have hung, that can.
func (s *scene) expectStuck(p *tarpits) {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		g.Expect(p.caught[writesNothing].Load()).To(BeNumerically(">=", 2*writingTarpits), "writes")
		g.Expect(p.waiting[listsNoNodes].Load()).To(BeNumerically(">=", listingTarpits), "lists")
		g.Expect(p.caught[saysNothing].Load() + p.caught[answersHalf].Load() + p.caught[onlyShakesHands].Load()).To(BeNumerically(">=", silentTarpits))
	}).WithTimeout(2 * patience).WithPolling(polling).Should(Succeed())
}

// Workload clusters that hang, in whatever way and however many, keep no other waiting: while every write to 25 of them
// hangs, Nodes of others inherit, also of a Cluster that only comes then. TestAHundredClustersThatHang measures how long these wait.
func TestTarpits(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, both)
	healthy := s.abroad(s.own("healthy"))
	p := newTarpits(t, healthy.AdminConfig())
	namespace := s.own("tarpit")
	var nodes []string
	for n := range theirNodes {
		nodes = append(nodes, fmt.Sprintf("%s-%d", namespace, n))
	}
	for _, name := range append(nodes, healthy.m.Name) {
		s.Expect(healthy.Client.Create(s.ctx, stage.Node(name))).To(Succeed())
	}
	s.expectInherited(healthy, stage.Node(healthy.m.Name))
	s.sink(p, namespace, nodes)
	t.Cleanup(func() { close(p.over) }) // before their servers are closed
	s.expectStuck(p)

	s.get(healthy.md)
	s.update(healthy.md, func() { healthy.md.Spec.Template.Labels["node.cluster.x-k8s.io/season"] = "winter" })
	node := stage.Node(healthy.m.Name)
	s.eventuallyNode(healthy, node, func(g Gomega) { g.Expect(node.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/season", "winter")) })

	lateName := s.own("late")
	late := abroad{family: s.settleIn(lateName, lateName, declared())}
	var err error
	late.Workload, err = s.UseWorkload(s.ctx, late.cluster, healthy.ControlPlane)
	s.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(late.Door.Shut)
	s.Expect(late.Client.Create(s.ctx, stage.Node(late.m.Name))).To(Succeed())
	s.expectInherited(late, stage.Node(late.m.Name))
	s.Expect(p.most.Load()).To(BeNumerically("<=", 2*writingTarpits), "one write of a Node of each at a time, and one of what admits Nodes")
}
