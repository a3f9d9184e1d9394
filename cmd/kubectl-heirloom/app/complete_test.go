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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/version"
)

// discovers is an API server with these resources, "<group>/<version>/<Kind>", and with Machine m, Heirloom and Cluster API.
func discovers(t *testing.T, resources ...string) string {
	t.Helper()
	running := func(labels map[string]string, image string) any {
		d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "hs", Name: "heirloom", Labels: labels}}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Image: image}}
		return appsv1.DeploymentList{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DeploymentList"}, Items: []appsv1.Deployment{d}}
	}
	empty := map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": map[string]any{"name": "empty"}}
	machine := map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": map[string]any{"name": "m", "labels": map[string]any{"team": "a"}},
		"spec": map[string]any{"taints": []any{map[string]any{"key": "gpu", "effect": "NoSchedule"}}}, "status": map[string]any{"nodeRef": map[string]any{"name": "n"}},
	}
	answers := map[string]any{
		"/api": metav1.APIVersions{},
		"/apis/apps/v1/deployments?app.kubernetes.io/component=manager":   running(map[string]string{"app.kubernetes.io/name": "heirloom"}, "heirloom:v0.3.0"),
		"/apis/apps/v1/deployments?cluster.x-k8s.io/provider=cluster-api": running(nil, "cluster-api-controller:v1.14.2"),
		"/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines":      map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineList", "items": []any{machine, empty}},
		"/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines/m":    machine,
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
			answer, ok = answers[r.URL.Path+"?"+r.URL.Query().Get("labelSelector")]
		}
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

// Kinds of Cluster API and its providers are offered: those of the category that clusterctl requires of them. After an object come its keys.
func TestArgumentsAreCompleted(t *testing.T) {
	url, cache := discovers(t, "apps/v1/Deployment", "cluster.x-k8s.io/v1beta2/Cluster|ClusterClass|Machine|MachineDeployment|MachinePool|MachineSet", "infrastructure.cluster.x-k8s.io/v1/AcmeMachine"), t.TempDir()
	for line, want := range map[string]string{
		"explain |": "acmemachine/\ncluster/\nclusterclass/\nmachine/\nmachinedeployment/\nmachinepool/\nmachineset/\nnode/\n:6\n", "explain machine/": "machine/empty\nmachine/m\n:4\n", "explain machines e": "empty\n:4\n",
		"explain node/": "node/n\n:4\n", "explain machine/m |": "gpu:NoSchedule\nteam\n:4\n", "explain node n t": "team\n:4\n",
		"release mach": "machine/\nmachinedeployment/\nmachinepool/\nmachineset/\n:6\n", "tree machine/": ":4\n", "release machine/m |": ":4\n",
	} {
		out, err := ran(t, append([]string{"__complete", "--server", url, "--cache-dir", cache}, strings.Split(strings.TrimSuffix(line, "|"), " ")...)...)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(out).To(Equal(want), line)
	}
}

func TestVersion(t *testing.T) {
	url := discovers(t, "apps/v1/Deployment", "cluster.x-k8s.io/v1beta2/Cluster|ClusterClass|Machine|MachineDeployment|MachinePool|MachineSet")
	for flag, want := range map[string]string{
		"--client=true":  "Client Version: " + version.String() + "\n",
		"--client=false": "Client Version: " + version.String() + "\nServer Version: v0.3.0\nCluster API Version: v1.14.2\n",
	} {
		out, err := ran(t, "version", "--server", url, "--cache-dir", t.TempDir(), flag)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(out).To(Equal(want))
	}
}
