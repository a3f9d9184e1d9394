// SPDX-License-Identifier: Apache-2.0

// Package chart tests the Helm chart: reviewed renderings, refused values, the webhooks' match conditions against the program, and the
// rendered objects with the real helm and a real API server.
package chart

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

const (
	releaseNamespace = "heirloom-system"
	fleetNamespace   = "fleet"
)

// values are values of the chart.
type values = map[string]any

func inRepository(t *testing.T, path string) string {
	t.Helper()
	root, err := controlplane.RepositoryRoot(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return filepath.Join(root, path)
}

func chartDir(t *testing.T) string { return inRepository(t, "deploy/chart/heirloom") }

// document returns a file of the repository.
func document(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(inRepository(t, path))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(content)
}

// render renders the chart, without its hook, with values that replace its own.
func render(t *testing.T, over values) ([]unstructured.Unstructured, error) {
	t.Helper()
	return controlplane.RenderChart(t.Context(), chartDir(t), controlplane.ChartOptions{Namespace: releaseNamespace, Values: over})
}

func renderWithHook(t *testing.T, over values) []unstructured.Unstructured {
	t.Helper()
	objects, err := controlplane.RenderChart(t.Context(), chartDir(t),
		controlplane.ChartOptions{Namespace: releaseNamespace, Values: over, Hooks: true})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return objects
}
