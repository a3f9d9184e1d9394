// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// apiServer is an API server in memory, which serves over the network.
type apiServer struct {
	*httptest.Server
	client.Client
	mu sync.Mutex
	// asked holds the requested paths, with their last user agents.
	asked map[string]string
}

// serve returns an API server. held, if set, holds up requests.
func serve(t *testing.T, held http.HandlerFunc, crds ...*apiextensionsv1.CustomResourceDefinition) *apiServer {
	t.Helper()
	Expect := NewWithT(t).Expect
	server, err := apiserver.New(apiserver.Options{Name: "server", CRDs: crds})
	Expect(err).NotTo(HaveOccurred())
	s := &apiServer{asked: map[string]string{}}
	s.Client, err = client.New(server.Client("admin"), client.Options{Scheme: scheme(t), Mapper: server.Mapper()})
	Expect(err).NotTo(HaveOccurred())
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked[r.URL.Path] = r.UserAgent()
		s.mu.Unlock()
		if held != nil {
			held(w, r)
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections() // a cache of Nodes watches until the program ends
		s.Close()
	})
	return s
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	all := runtime.NewScheme()
	NewWithT(t).Expect(errors.Join(clusterv1.AddToScheme(all), corev1.AddToScheme(all))).To(Succeed())
	return all
}

// newManagement returns a management cluster with namespace ns.
func newManagement(t *testing.T) *apiServer {
	t.Helper()
	Expect := NewWithT(t).Expect
	paths, err := controlplane.CAPICRDPaths()
	Expect(err).NotTo(HaveOccurred())
	found := envtest.CRDInstallOptions{Paths: paths}
	Expect(envtest.ReadCRDFiles(&found)).To(Succeed())
	at := slices.IndexFunc(found.CRDs, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Spec.Names.Kind == "Cluster" })
	found.CRDs[at].Spec.Conversion = nil // the API server has no conversion webhook
	s := serve(t, nil, found.CRDs[at])
	Expect(s.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})).To(Succeed())
	return s
}

// add creates a Cluster with a kubeconfig. filter is the value of its label watch-filter.
func (s *apiServer) add(t *testing.T, name, filter, kubeconfig string, provisioned bool) {
	t.Helper()
	Expect := NewWithT(t).Expect
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{clusterv1.WatchLabel: filter}}}
	c.Spec.ClusterNetwork.ServiceDomain = "cluster.local"
	key := secret(kubeconfig)
	key.Name = name + "-kubeconfig"
	Expect(s.Create(t.Context(), key)).To(Succeed())
	Expect(s.Create(t.Context(), c)).To(Succeed())
	if provisioned {
		c.Status.Initialization.InfrastructureProvisioned = &provisioned
		c.Status.FailureDomains = []clusterv1.FailureDomain{{Name: "a", ControlPlane: &provisioned}}
		Expect(s.Status().Update(t.Context(), c)).To(Succeed())
	}
}

// agent returns the user agent that has requested a path.
func (s *apiServer) agent(path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

// paths returns the requested paths.
func (s *apiServer) paths() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(slices.Sorted(maps.Keys(s.asked)))
}

// started returns a ClusterCache in a manager that runs until the test ends.
func started(t *testing.T, management *apiServer, concurrency int, refused func(context.Context, types.NamespacedName, error)) clustercache.ClusterCache {
	t.Helper()
	Expect := NewWithT(t).Expect
	mgr, err := ctrl.NewManager(&rest.Config{Host: management.URL, UserAgent: "heirloom/test"}, ctrl.Options{
		Scheme: scheme(t), Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{"ns": {}}},
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	Expect(err).NotTo(HaveOccurred())
	clusters, err := NewClusterCache(t.Context(), mgr, Options{
		WatchFilter: "mine", Refused: refused,
		QPS: 20, Burst: 30, Concurrency: concurrency, SyncPeriod: time.Hour,
		Nodes: map[string]client.IndexerFunc{"a": func(o client.Object) []string { return []string{o.GetLabels()["a"]} }},
		TrimNode: func(o any) (any, error) {
			o.(*corev1.Node).Spec.PodCIDR = ""
			return o, nil
		},
	})
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		Expect(<-ended).To(Succeed())
	})
	return clusters
}

// The ClusterCache connects to a Cluster by its Secret. It caches the selected fields of its Nodes, with the given indexes. It does not
// connect to Clusters of another Heirloom, to a Cluster without an API server, or with a kubeconfig that would make Heirloom send a file.
func TestNodesAreCached(t *testing.T) {
	g := NewWithT(t)
	s, workload := newManagement(t), serve(t, nil)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "1"}}, Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24"}}
	g.Expect(workload.Create(t.Context(), node)).To(Succeed())
	s.add(t, "red", "mine", leadsTo(workload.URL, `{token: "t"}`), true)
	s.add(t, "thief", "mine", leadsTo(workload.URL+"/thief", `{tokenFile: /proc/self/environ}`), true)
	s.add(t, "to-come", "mine", leadsTo(workload.URL, `{token: "t"}`), false)
	s.add(t, "theirs", "theirs", leadsTo(workload.URL, `{token: "t"}`), true)
	refused := make(chan string, 100)
	clusters := started(t, s, 1, func(_ context.Context, cluster types.NamespacedName, err error) {
		refused <- cluster.Name + ": " + err.Error()
	})
	nodes := &corev1.NodeList{}
	g.Eventually(func() error {
		reader, err := clusters.GetReader(t.Context(), red)
		if err != nil {
			return err
		}
		return reader.List(t.Context(), nodes, client.MatchingFields{"a": "1"})
	}).WithTimeout(30*time.Second).Should(Succeed(), s.paths)
	g.Expect(nodes.Items).To(HaveLen(1))
	g.Expect(nodes.Items[0].Spec.PodCIDR).To(BeEmpty(), "only the selected fields are cached")
	g.Expect(workload.agent("/api/v1/nodes")).To(HavePrefix("heirloom/test"))
	g.Eventually(refused).WithTimeout(30 * time.Second).Should(Receive(HavePrefix(`thief: user "u" has tokenFile`)))
	for _, name := range []string{"theirs", "to-come"} {
		g.Expect(s.agent("/api/v1/namespaces/ns/secrets/"+name+"-kubeconfig")).To(BeEmpty(), name)
	}
	g.Expect(workload.paths()).NotTo(ContainSubstring("/thief/"), "its server has had no request")
	g.Expect(s.agent("/api/v1/secrets")).To(BeEmpty(), "Secrets are not listed, because the right to list is missing")
	g.Expect(s.agent("/apis/cluster.x-k8s.io/v1beta2/clusters")).To(BeEmpty(), "other namespaces are not read")
}

// The connection to a Cluster ends when another Heirloom gets the Cluster, and begins again when the Cluster comes back.
func TestConnectionsFollowTheLabel(t *testing.T) {
	g := NewWithT(t)
	s, workload := newManagement(t), serve(t, nil)
	s.add(t, "red", "mine", leadsTo(workload.URL, `{token: "t"}`), true)
	clusters := started(t, s, 1, nil)
	cluster := &clusterv1.Cluster{}
	for _, of := range []struct {
		filter string
		answer OmegaMatcher
	}{{"mine", Succeed()}, {"theirs", MatchError(clustercache.ErrClusterNotConnected)}, {"mine", Succeed()}} {
		g.Expect(s.Get(t.Context(), red, cluster)).To(Succeed())
		cluster.Labels[clusterv1.WatchLabel] = of.filter
		g.Expect(s.Update(t.Context(), cluster)).To(Succeed())
		g.Eventually(func() error {
			_, err := clusters.GetReader(t.Context(), red)
			return err
		}).WithTimeout(30*time.Second).Should(of.answer, of.filter)
	}
}

// A Cluster that answers all requests except a list of its Nodes occupies a worker that makes connections. Other Clusters are connected as
// long as there are fewer such Clusters than workers.
func TestConnectionsWaitForNoOther(t *testing.T) {
	g := NewWithT(t)
	const workers = 21
	var listing atomic.Int64
	silent := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/nodes" {
			listing.Add(1)
			<-r.Context().Done()
		}
	})
	management, workload := newManagement(t), serve(t, nil)
	for i := range workers - 1 {
		management.add(t, fmt.Sprint("silent-", i), "mine", leadsTo(silent.URL, `{token: "t"}`), true)
	}
	management.add(t, "red", "mine", leadsTo(workload.URL, `{token: "t"}`), true)
	clusters := started(t, management, workers, nil)
	g.Eventually(func(g Gomega) {
		g.Expect(listing.Load()).To(BeNumerically(">=", workers-1))
		_, err := clusters.GetReader(t.Context(), red)
		g.Expect(err).NotTo(HaveOccurred())
	}).WithTimeout(50 * time.Second).Should(Succeed())
}
