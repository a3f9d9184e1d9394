// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// What the chart renders with its defaults, cert-manager's objects included, is accepted by the API server to the last
// field. All other tests install what it renders for a program that runs outside of the cluster.
func TestTheDefaultChartIsValid(t *testing.T) {
	crds, err := controlplane.CAPICRDPaths()
	if err != nil {
		t.Fatal(err)
	}
	certManager, err := controlplane.CertManagerCRDs()
	if err != nil {
		t.Fatal(err)
	}
	s := newScene(t, stage.Options{
		WithoutProgram: true, ControlPlane: controlplane.Options{CRDPaths: append(crds, certManager)},
	})
	root, err := controlplane.RepositoryRoot(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	chart := filepath.Join(root, "deploy", "chart", "heirloom")
	objects, err := controlplane.RenderChart(s.ctx, chart, controlplane.ChartOptions{Namespace: stage.Namespace})
	s.Expect(err).NotTo(HaveOccurred())

	kinds := map[string]bool{}
	for i := range objects {
		object := &objects[i]
		kinds[object.GetKind()] = true
		object.SetName(object.GetName() + "-default") // those of the stage are there already
		s.Expect(s.Client.Create(s.ctx, object, client.DryRunAll, client.FieldValidation("Strict"))).
			To(Succeed(), "%s %s", object.GetKind(), object.GetName())
	}
	for _, kind := range []string{
		"Deployment", "Service", "Issuer", "Certificate", "ServiceAccount", "ClusterRole",
		"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
	} {
		s.Expect(kinds).To(HaveKey(kind))
	}
}
