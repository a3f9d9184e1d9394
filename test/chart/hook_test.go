// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// What the pre-delete hook does, and the rights it has for it, are no more than the values ask for.
func TestTheHook(t *testing.T) {
	const only, stops, passes = "--only-webhook-configurations", "--take-lease", "--pass-over-unreachable"
	for _, tc := range []struct {
		name     string
		over     values
		has, not []string
		// secrets are the roles that let it get Secrets of Clusters.
		secrets []string
	}{
		{"as it is", nil, []string{stops, "--only-workload-clusters", passes}, []string{only, "--keep-values=false"}, []string{"ClusterRole heirloom-uninstall"}},
		{"one namespace", values{"namespace": fleetNamespace}, []string{stops, passes, "--namespace=" + fleetNamespace}, []string{only}, []string{"Role heirloom-uninstall-fleet"}},
		{"a release", values{"uninstall": values{"release": true}}, []string{stops, "--keep-values=false"}, []string{only, passes, "--only-workload-clusters"}, []string{"ClusterRole heirloom-uninstall"}},
		{"workload clusters are left", values{"uninstall": values{"workloadClusters": false}}, []string{only}, []string{stops, passes}, nil},
		{
			"nobody can stop the loop", values{"leaderElection": values{"enabled": false}, "replicaCount": 1},
			[]string{only}, []string{stops, passes}, nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			objects, err := controlplane.RenderChart(t.Context(), chartDir(t), controlplane.ChartOptions{Namespace: releaseNamespace, Values: tc.over, Hooks: true})
			Expect(err).NotTo(HaveOccurred())
			var args, secrets []string
			for _, object := range objects {
				if object.GetAnnotations()["helm.sh/hook"] != "pre-delete" {
					continue
				}
				if containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers"); len(containers) > 0 {
					args, _, _ = unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
				}
				rules, _, _ := unstructured.NestedSlice(object.Object, "rules")
				for _, rule := range rules {
					rule := rule.(map[string]any)
					if _, named := rule["resourceNames"]; !named && rule["resources"].([]any)[0] == "secrets" {
						secrets = append(secrets, object.GetKind()+" "+object.GetName())
					}
				}
			}
			Expect(args).To(ContainElements(tc.has))
			for _, arg := range tc.not {
				Expect(args).NotTo(ContainElement(arg))
			}
			Expect(secrets).To(Equal(tc.secrets))
		})
	}
}
