// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// hasAPIServer is the status of a Cluster with an API server.
const hasAPIServer = `{"initialization": {"infrastructureProvisioned": true}, "failureDomains": [{"name": "a", "controlPlane": true}]}`

// apiServers serves the management cluster, and below /red the workload cluster.
type apiServers struct {
	*httptest.Server
	silent
	mu    sync.Mutex
	asked map[string]string
	over  chan struct{}
}

func newAPIServers(t *testing.T, count int) *apiServers {
	s := &apiServers{silent: silent{count: count}, asked: map[string]string{}, over: make(chan struct{})}
	s.Server = httptest.NewTLSServer(s.before(http.HandlerFunc(s.answer), s.over))
	t.Cleanup(func() {
		close(s.over) // a cache of Nodes watches until the program ends
		s.Close()
	})
	return s
}

func (s *apiServers) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked[r.URL.Path] = r.UserAgent()
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Has("sendInitialEvents") { // the client then falls back to a list
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(apierrors.NewInvalid(schema.GroupKind{}, "", nil).Status())
		return
	}
	if r.URL.Query().Get("watch") != "" {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // the client may be gone
		select {
		case <-r.Context().Done():
		case <-s.over:
		}
		return
	}
	answer, ok := s.answers()[strings.TrimPrefix(r.URL.Path, "/red")]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = io.WriteString(w, answer)
}

// answers returns the response bodies by path.
func (s *apiServers) answers() map[string]string {
	const group, verbs = "/apis/cluster.x-k8s.io/v1beta2", `["get", "list", "watch"]`
	const version = `{"groupVersion": "cluster.x-k8s.io/v1beta2", "version": "v1beta2"}`
	const mine = `"labels": {"cluster.x-k8s.io/watch-filter": "mine"}`
	kubeconfig := func(text string) string {
		raw, _ := json.Marshal(secret(text))
		return string(raw)
	}
	return map[string]string{
		"/":    `{"paths": []}`,
		"/api": `{"kind": "APIVersions", "versions": ["v1"]}`,
		"/api/v1": fmt.Sprintf(`{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [
			{"name": "nodes", "kind": "Node", "verbs": %[1]s}, {"name": "secrets", "kind": "Secret", "namespaced": true, "verbs": %[1]s}]}`, verbs),
		"/apis": fmt.Sprintf(`{"kind": "APIGroupList", "apiVersion": "v1", "groups": [
			{"name": "cluster.x-k8s.io", "versions": [%[1]s], "preferredVersion": %[1]s}]}`, version),
		group: fmt.Sprintf(`{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "cluster.x-k8s.io/v1beta2", "resources": [
			{"name": "clusters", "kind": "Cluster", "namespaced": true, "verbs": %s}]}`, verbs),
		group + "/namespaces/ns/clusters": fmt.Sprintf(`{"kind": "ClusterList", "apiVersion": "cluster.x-k8s.io/v1beta2",
			"metadata": {"resourceVersion": "1"}, "items": [
			{"metadata": {"namespace": "ns", "name": "red", %[1]s}, "status": %[2]s},
			{"metadata": {"namespace": "ns", "name": "thief", %[1]s}, "status": %[2]s},
			{"metadata": {"namespace": "ns", "name": "to-come", %[1]s}, "status": {}},
			%[3]s
			{"metadata": {"namespace": "ns", "name": "theirs"}, "status": %[2]s}]}`, mine, hasAPIServer, s.clusters(hasAPIServer)),
		"/api/v1/namespaces/ns/secrets/red-kubeconfig":   kubeconfig(leadsTo(s.URL+"/red", `{token: "t"}`)),
		"/api/v1/namespaces/ns/secrets/thief-kubeconfig": kubeconfig(leadsTo(s.URL+"/thief", `{tokenFile: /proc/self/environ}`)),
		"/api/v1/nodes": `{"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [
			{"metadata": {"name": "n", "labels": {"a": "1"}}, "spec": {"podCIDR": "10.0.0.0/24"}}]}`,
	}
}

// agent returns the user agent that has requested a path.
func (s *apiServers) agent(path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

// paths returns the requested paths.
func (s *apiServers) paths() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(slices.Sorted(maps.Keys(s.asked)))
}

// started returns a ClusterCache in a manager that runs until the test ends.
func started(t *testing.T, s *apiServers, concurrency int, refused func(context.Context, types.NamespacedName, error)) clustercache.ClusterCache {
	t.Helper()
	Expect := NewWithT(t).Expect
	scheme := runtime.NewScheme()
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	Expect(corev1.AddToScheme(scheme)).To(Succeed())
	mgr, err := ctrl.NewManager(&rest.Config{Host: s.URL, UserAgent: "heirloom/test", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, ctrl.Options{
		Scheme: scheme, Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{"ns": {}}},
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
	s := newAPIServers(t, 0)
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
	g.Expect(s.agent("/red/api/v1/nodes")).To(HavePrefix("heirloom/test"))
	g.Eventually(refused).WithTimeout(30 * time.Second).Should(Receive(HavePrefix(`thief: user "u" has tokenFile`)))
	for _, name := range []string{"theirs", "to-come"} {
		g.Expect(s.agent("/api/v1/namespaces/ns/secrets/"+name+"-kubeconfig")).To(BeEmpty(), name)
	}
	g.Expect(s.paths()).NotTo(ContainSubstring(" /thief/"), "its server has had no request")
	g.Expect(s.agent("/api/v1/secrets")).To(BeEmpty(), "Secrets are not listed, because the right to list is missing")
	g.Expect(s.agent("/apis/cluster.x-k8s.io/v1beta2/clusters")).To(BeEmpty(), "other namespaces are not read")
}
