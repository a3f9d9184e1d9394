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

// silent are further Clusters, silent-0 and so on. They answer everything but a list of their Nodes.
type silent struct {
	count int
	// listing is how many of them wait for their Nodes now.
	listing atomic.Int64
}

// clusters are these Clusters in a list, with a comma behind each.
func (s *silent) clusters(status string) string {
	var clusters strings.Builder
	for n := range s.count {
		_, _ = fmt.Fprintf(&clusters, `{"metadata": {"namespace": "ns", "name": "silent-%d", "labels": {"cluster.x-k8s.io/watch-filter": "mine"}}, "status": %s},`,
			n, status)
	}
	return clusters.String()
}

// beside answers for the silent Clusters until that is over, and leaves the rest to others.
func (s *silent) beside(others http.Handler, over <-chan struct{}) http.Handler {
	kubeconfig, below := regexp.MustCompile(`^/api/v1/namespaces/ns/secrets/(silent-\d+)-kubeconfig$`), regexp.MustCompile(`^/silent-\d+`)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if found := kubeconfig.FindStringSubmatch(r.URL.Path); found != nil {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(secret(leadsTo("https://"+r.Host+"/"+found[1], `{token: "t"}`))) // a client that has gone reads nothing
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

// A Cluster that answers everything but a list of its Nodes keeps a worker busy that makes connections. As long as there are fewer of
// them than workers, others are connected all the same.
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
