// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// silent serves further Clusters, silent-0 and so on. They answer all requests except a list of their Nodes.
type silent struct {
	count int
	// listing counts the Clusters whose Nodes are being listed.
	listing atomic.Int64
}

// clusters returns these Clusters in JSON, with a comma after each.
func (s *silent) clusters(status string) string {
	var clusters strings.Builder
	for n := range s.count {
		_, _ = fmt.Fprintf(&clusters, `{"metadata": {"namespace": "ns", "name": "silent-%d", "labels": {"cluster.x-k8s.io/watch-filter": "mine"}}, "status": %s},`,
			n, status)
	}
	return clusters.String()
}

// before serves the silent Clusters until over is closed, and passes other requests to others.
func (s *silent) before(others http.Handler, over <-chan struct{}) http.Handler {
	kubeconfig, below := regexp.MustCompile(`^/api/v1/namespaces/ns/secrets/(silent-\d+)-kubeconfig$`), regexp.MustCompile(`^/silent-\d+`)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if found := kubeconfig.FindStringSubmatch(r.URL.Path); found != nil {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(secret(leadsTo("https://"+r.Host+"/"+found[1], `{token: "t"}`))) // the client may be gone
			return
		}
		if !below.MatchString(r.URL.Path) {
			others.ServeHTTP(w, r)
			return
		}
		r.URL.Path = below.ReplaceAllString(r.URL.Path, "/red")
		if r.URL.Path != "/red/api/v1/nodes" || r.URL.Query().Has("sendInitialEvents") {
			others.ServeHTTP(w, r)
			return
		}
		s.listing.Add(1)
		defer s.listing.Add(-1)
		select {
		case <-r.Context().Done():
		case <-over:
		}
	})
}

// A Cluster that answers all requests except a list of its Nodes occupies a worker that makes connections. Other Clusters are connected as
// long as there are fewer such Clusters than workers.
func TestConnectionsWaitForNoOther(t *testing.T) {
	g := NewWithT(t)
	const workers = 21
	s := newAPIServers(t, workers-1)
	clusters := started(t, s, workers, nil)
	g.Eventually(func(g Gomega) {
		g.Expect(s.listing.Load()).To(BeNumerically(">=", s.count))
		_, err := clusters.GetReader(t.Context(), red)
		g.Expect(err).NotTo(HaveOccurred())
	}).WithTimeout(50 * time.Second).Should(Succeed())
}
