// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// Operators can give Heirloom their values for scheduling and pull secrets of cert-manager and of Kyverno unchanged.
func TestValuesOfOtherCharts(t *testing.T) {
	for _, tc := range []struct {
		file string
		want values // fields of a Pod
	}{
		{"cert-manager.yaml", values{
			"imagePullSecrets":  []any{values{"name": "image-pull-secret"}},
			"priorityClassName": "system-cluster-critical",
			"nodeSelector":      values{"node-role.kubernetes.io/infra": "", "kubernetes.io/os": "linux"},
			"tolerations":       []any{values{"key": "foo.bar.com/role", "operator": "Equal", "value": "master", "effect": "NoSchedule"}},
			"affinity": values{"nodeAffinity": values{"requiredDuringSchedulingIgnoredDuringExecution": values{"nodeSelectorTerms": []any{
				values{"matchExpressions": []any{values{"key": "foo.bar.com/role", "operator": "In", "values": []any{"master"}}}},
			}}}},
			"topologySpreadConstraints": []any{values{
				"maxSkew": 2.0, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
				"labelSelector": values{"matchLabels": values{"app.kubernetes.io/instance": "cert-manager", "app.kubernetes.io/component": "controller"}},
			}},
			"automountServiceAccountToken": true,
		}},
		{"kyverno.yaml", values{
			"imagePullSecrets":  []any{values{"name": "kyverno-pull-secret"}},
			"priorityClassName": "system-cluster-critical",
			"nodeSelector":      values{"kubernetes.io/os": "linux", "pool": "system"},
			"tolerations": []any{
				values{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
				values{"key": "node-role.kubernetes.io/infra", "operator": "Exists", "effect": "NoSchedule"},
			},
		}},
	} {
		t.Run(tc.file, func(t *testing.T) {
			objects := template(t, chartDir(t), "--values", filepath.Join("testdata", tc.file))
			expectPod(t, objects, tc.want)
		})
	}
}

// A chart that depends on this chart enables it with a condition, and passes its global values.
func TestAsADependency(t *testing.T) {
	Expect := NewWithT(t).Expect
	umbrella := t.TempDir()
	Expect(os.WriteFile(filepath.Join(umbrella, "Chart.yaml"), []byte(`{apiVersion: v2, name: platform, version: 0.1.0, dependencies: [
		{name: heirloom, version: ">=0.0.0-0", condition: heirloom.enabled}]}`), 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(umbrella, "values.yaml"), []byte(`{
		global: {imageRegistry: "registry.example.com:5000/proxy/", imagePullSecrets: [registry], image: someones, other: {a: b}},
		heirloom: {enabled: true, replicaCount: 3, fullnameOverride: heirloom}}`), 0o600)).To(Succeed())
	Expect(os.CopyFS(filepath.Join(umbrella, "charts", "heirloom"), os.DirFS(chartDir(t)))).To(Succeed())

	objects := template(t, umbrella)
	expectPod(t, objects, values{"imagePullSecrets": []any{values{"name": "registry"}}})
	Expect(container(t, objects)["image"]).To(HavePrefix("registry.example.com:5000/proxy/heirloom-dev/heirloom:"))
	Expect(deployment(t, objects).Object).To(HaveKeyWithValue("spec", HaveKeyWithValue("replicas", BeEquivalentTo(3))))

	Expect(template(t, umbrella, "--set", "heirloom.enabled=false")).To(BeEmpty())
}

// template returns the output of "helm template" for a chart, without hooks.
func template(t *testing.T, chart string, args ...string) []unstructured.Unstructured {
	t.Helper()
	out, _, err := controlplane.Helm(t.Context(), os.DevNull,
		append([]string{"template", "heirloom", chart, "--namespace", releaseNamespace, "--no-hooks"}, args...)...)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	objects, err := controlplane.DecodeObjects(out)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return objects
}

// expectPod expects fields of the Deployment's Pods.
func expectPod(t *testing.T, objects []unstructured.Unstructured, want values) {
	t.Helper()
	pod, _, err := unstructured.NestedMap(deployment(t, objects).Object, "spec", "template", "spec")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, value := range want {
		NewWithT(t).Expect(pod[name]).To(Equal(value), name)
	}
}
