// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// observed turns on all that the chart has for those who watch Heirloom.
func observed() map[string]any {
	on := map[string]any{"enabled": true}
	return map[string]any{"monitoring": map[string]any{
		"readers":        []any{map[string]any{"name": "prometheus", "namespace": "monitoring"}},
		"serviceMonitor": map[string]any{"enabled": true, "interval": "30s", "labels": map[string]any{"release": "prometheus"}},
		"prometheusRule": on,
		"dashboard":      on,
	}}
}

// What the chart renders, cert-manager's and the Prometheus Operator's objects included, is accepted by the API server to the
// last field. All other tests install what it renders for a program that runs outside of the cluster.
func TestTheChartIsValid(t *testing.T) {
	crds, err := controlplane.CAPICRDPaths()
	if err != nil {
		t.Fatal(err)
	}
	certManager, err := controlplane.CertManagerCRDs()
	if err != nil {
		t.Fatal(err)
	}
	operator, err := controlplane.PrometheusOperatorCRDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := newScene(t, stage.Options{
		WithoutProgram: true, ControlPlane: controlplane.Options{CRDPaths: slices.Concat(crds, []string{certManager}, operator)},
	})
	defaults := []string{
		"Deployment", "Service", "Issuer", "Certificate", "ServiceAccount", "ClusterRole",
		"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
	}
	for _, tc := range []struct {
		name   string
		values map[string]any
		kinds  []string
	}{
		{name: "by default", kinds: defaults},
		{name: "observed", values: observed(), kinds: append(defaults, "ServiceMonitor", "PrometheusRule", "ConfigMap")},
	} {
		t.Run(tc.name, func(t *testing.T) { s.in(t).expectValid(tc.values, tc.kinds) })
	}
}

func (s *scene) expectValid(values map[string]any, want []string) {
	s.t.Helper()
	root, err := controlplane.RepositoryRoot(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	chart := filepath.Join(root, "deploy", "chart", "heirloom")
	objects, err := controlplane.RenderChart(s.ctx, chart, controlplane.ChartOptions{Namespace: stage.Namespace, Values: values})
	s.Expect(err).NotTo(HaveOccurred())
	kinds := map[string]bool{}
	for i := range objects {
		object := &objects[i]
		kinds[object.GetKind()] = true
		object.SetName(object.GetName() + "-default") // those of the stage are there already
		s.Expect(s.Client.Create(s.ctx, object, client.DryRunAll, client.FieldValidation("Strict"))).
			To(Succeed(), "%s %s", object.GetKind(), object.GetName())
	}
	for _, kind := range want {
		s.Expect(kinds).To(HaveKey(kind))
	}
}
