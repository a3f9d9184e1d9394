// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// discovers is an API server with these resources, "<group>/<version>/<Kind>", and without any object.
func discovers(t *testing.T, resources ...string) string {
	t.Helper()
	answers := map[string]any{
		"/api": metav1.APIVersions{}, "/apis/apps/v1/deployments": appsv1.DeploymentList{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DeploymentList"}},
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
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: strings.ToLower(kind) + "s", Kind: kind, Namespaced: true, Verbs: metav1.Verbs{"get", "list"},
			})
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

// InfraMachines are offered whose API group the server knows.
func TestKindsOfProviders(t *testing.T) {
	url := discovers(t, "apps/v1/Deployment", "cluster.x-k8s.io/v1beta2/Machine|MachineSet|MachineDeployment|MachinePool|Cluster|ClusterClass", "infrastructure.cluster.x-k8s.io/v1/AcmeMachine",
		"infra.example.com/v1/ElsewhereMachine", "other.example.com/v1/Otherthing")
	offered := func(flags ...string) string {
		args := append([]string{"__complete", "--server", url, "--cache-dir", t.TempDir()}, flags...)
		out, err := ran(t, append(args, "explain", "")...)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return out
	}
	NewWithT(t).Expect(offered()).To(And(ContainSubstring("acmemachine/\n"), Not(ContainSubstring("elsewheremachine/"))))
	NewWithT(t).Expect(offered("--server-flags=--additional-provider-groups=infra.example.com")).To(
		And(ContainSubstring("acmemachine/\n"), ContainSubstring("elsewheremachine/\n"), Not(ContainSubstring("otherthing"))))
}
