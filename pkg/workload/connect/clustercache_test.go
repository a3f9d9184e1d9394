// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"encoding/json"
	"fmt"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	"github.com/heirloom-dev/heirloom/test/lockup"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// hasAPIServer is the status of a Cluster that has an API server.
const hasAPIServer = `{"initialization": {"infrastructureProvisioned": true}, "failureDomains": [{"name": "a", "controlPlane": true}]}`

// apiServers answers for the management cluster, and below /red for the workload cluster.
type apiServers struct {
	*httptest.Server
	silent
	mu    sync.Mutex
	asked map[string]string
	over  chan struct{}
}

func newAPIServers(t *testing.T, count int) *apiServers {
	s := &apiServers{silent: silent{count: count}, asked: map[string]string{}, over: make(chan struct{})}
	s.Server = httptest.NewTLSServer(s.beside(http.HandlerFunc(s.answer), s.over))
	t.Cleanup(func() {
		close(s.over) // a cache of Nodes watches for as long as the program lives
		s.Close()
	})
	return s
}

func (s *apiServers) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked[r.URL.Path] = r.UserAgent()
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Has("sendInitialEvents") { // the client then lists
		w.WriteHeader(http.StatusUnprocessableEntity)
		s.json(w, apierrors.NewInvalid(schema.GroupKind{}, "", nil).Status())
		return
	}
	if r.URL.Query().Get("watch") != "" {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // a client that has gone hears nothing
		select {
		case <-r.Context().Done():
		case <-s.over:
		}
		return
	}
	group := "/apis/" + clusterv1.GroupVersion.String()
	switch path := strings.TrimPrefix(r.URL.Path, "/red"); path {
	case "/api":
		s.json(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case "/apis":
		version := metav1.GroupVersionForDiscovery{GroupVersion: clusterv1.GroupVersion.String(), Version: clusterv1.GroupVersion.Version}
		s.json(w, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{{
			Name: clusterv1.GroupVersion.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
		}}})
	case group:
		s.json(w, resources(clusterv1.GroupVersion.String(), metav1.APIResource{Name: "clusters", Kind: "Cluster", Namespaced: true}))
	case "/api/v1":
		s.json(w, resources("v1", metav1.APIResource{Name: "nodes", Kind: "Node"}, metav1.APIResource{Name: "secrets", Kind: "Secret", Namespaced: true}))
	case group + "/namespaces/ns/clusters":
		_, _ = fmt.Fprintf(w, `{"kind": "ClusterList", "apiVersion": %q, "metadata": {"resourceVersion": "1"}, "items": [
			{"metadata": {"namespace": "ns", "name": "red", %[2]s}, "status": %[3]s},
			{"metadata": {"namespace": "ns", "name": "thief", %[2]s}, "status": %[3]s},
			{"metadata": {"namespace": "ns", "name": "to-come", %[2]s}, "status": {}},
			%[4]s
			{"metadata": {"namespace": "ns", "name": "theirs"}, "status": %[3]s}]}`,
			clusterv1.GroupVersion.String(), `"labels": {"cluster.x-k8s.io/watch-filter": "mine"}`, hasAPIServer, s.clusters(hasAPIServer))
	case "/api/v1/namespaces/ns/secrets/red-kubeconfig":
		s.json(w, secret(leadsTo(s.URL+"/red", `{token: "t"}`)))
	case "/api/v1/namespaces/ns/secrets/thief-kubeconfig":
		s.json(w, secret(leadsTo(s.URL+"/thief", `{tokenFile: /proc/self/environ}`)))
	case "/api/v1/nodes":
		s.json(w, corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Node{
			{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "1"}}, Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24"}},
		}})
	case "/":
		_, _ = fmt.Fprint(w, `{"paths": []}`)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func resources(groupVersion string, all ...metav1.APIResource) metav1.APIResourceList {
	for i := range all {
		all[i].Verbs = metav1.Verbs{"get", "list", "watch"}
	}
	return metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: groupVersion, APIResources: all}
}

func (*apiServers) json(w http.ResponseWriter, what any) {
	if err := json.NewEncoder(w).Encode(what); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// agent returns who has asked for a path.
func (s *apiServers) agent(path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

// paths are what has been asked for.
func (s *apiServers) paths() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(slices.Sorted(maps.Keys(s.asked)))
}

// started is a ClusterCache in a manager that is at work until the test ends.
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
	before, err := lockup.Queues()
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			Expect(err).To(MatchError(ContainSubstring("within grace period")))
			Expect(lockup.Queues()).To(BeNumerically(">", before), "nothing else may keep it from ending")
		}
	})
	return clusters
}

// A Cluster is reached by its Secret. Of its Nodes there is what is wanted, by what they are
// looked for. Clusters of another Heirloom are not reached, nor one that has no API server yet, nor one whose kubeconfig wants
// Heirloom to send it a file.
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
	g.Expect(nodes.Items[0].Spec.PodCIDR).To(BeEmpty(), "only what is wanted is kept")
	g.Expect(s.agent("/red/api/v1/nodes")).To(HavePrefix("heirloom/test"))
	g.Eventually(refused).WithTimeout(30 * time.Second).Should(Receive(HavePrefix(`thief: user "u" has tokenFile`)))
	for _, name := range []string{"theirs", "to-come"} {
		g.Expect(s.agent("/api/v1/namespaces/ns/secrets/"+name+"-kubeconfig")).To(BeEmpty(), name)
	}
	g.Expect(s.paths()).NotTo(ContainSubstring(" /thief/"), "its server has not been asked for anything")
	g.Expect(s.agent("/api/v1/secrets")).To(BeEmpty(), "Secrets are not listed, for there is no right to")
	g.Expect(s.agent("/apis/cluster.x-k8s.io/v1beta2/clusters")).To(BeEmpty(), "other namespaces are not read")
}
