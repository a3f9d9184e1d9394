// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// discovers is an API server with these resources, "<group>/<version>/<Kind>", and with Machine m.
func discovers(t *testing.T, resources ...string) string {
	t.Helper()
	answers := map[string]any{
		"/api": metav1.APIVersions{},
		"/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines/m": map[string]any{
			"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": map[string]any{"name": "m", "labels": map[string]any{"team": "a"}},
		},
	}
	groups := metav1.APIGroupList{}
	for _, resource := range resources {
		part := strings.Split(resource, "/")
		version := metav1.GroupVersionForDiscovery{GroupVersion: part[0] + "/" + part[1], Version: part[1]}
		groups.Groups = append(groups.Groups, metav1.APIGroup{
			Name: part[0], Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
		})
		list := metav1.APIResourceList{GroupVersion: version.GroupVersion}
		for kind := range strings.SplitSeq(part[2], "|") {
			resource := metav1.APIResource{
				Name: strings.ToLower(kind) + "s", SingularName: strings.ToLower(kind), Kind: kind, Namespaced: true, Verbs: metav1.Verbs{"get", "list"},
			}
			if part[0] != "apps" {
				resource.Categories = []string{"cluster-api"}
			}
			list.APIResources = append(list.APIResources, resource)
		}
		answers["/apis/"+version.GroupVersion] = list
	}
	answers["/apis"] = groups
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Kinds of Cluster API and its providers are offered: those of the category that clusterctl requires of them.
func TestKindsAreCompleted(t *testing.T) {
	url := discovers(t, "apps/v1/Deployment", "cluster.x-k8s.io/v1beta2/Cluster|Machine", "infrastructure.cluster.x-k8s.io/v1/AcmeMachine")
	out, err := ran(t, "__complete", "--server", url, "--cache-dir", t.TempDir(), "explain", "")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(out).To(Equal("acmemachine/\ncluster/\nmachine/\nnode/\n:6\n"))
	out, err = ran(t, "__complete", "--server", url, "--cache-dir", t.TempDir(), "explain", "machine/m", "t")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(out).To(Equal("team\n:4\n"))
}
