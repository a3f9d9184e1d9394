// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// The Namespace is last, so that applying in the order of the template would fail.
const chartTemplate = `
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
  namespace: {{ .Release.Namespace }}
data:
  colour: {{ .Values.colour }}
---
{{- if .Values.nothing }}
kind: Nothing
{{- end }}
---
apiVersion: v1
kind: Namespace
metadata:
  name: {{ .Release.Namespace }}
---
apiVersion: v1
kind: Secret
metadata:
  name: for-a-moment
  annotations:
    helm.sh/hook: pre-delete
`

func TestRenderChart(t *testing.T) {
	kinds := func(hooks bool) (kinds []string) {
		for _, object := range renderedChart(t, hooks) {
			kinds = append(kinds, object.GetKind())
		}
		return kinds
	}
	NewWithT(t).Expect(kinds(false)).To(ConsistOf("ConfigMap", "Namespace"))
	NewWithT(t).Expect(kinds(true)).To(ConsistOf("ConfigMap", "Namespace", "Secret"))
}

func TestRenderChartFails(t *testing.T) {
	_, err := controlplane.RenderChart(t.Context(), t.TempDir(), controlplane.ChartOptions{Namespace: "default"})
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("Chart.yaml")))
}

func renderedChart(t *testing.T, hooks bool) []unstructured.Unstructured {
	t.Helper()
	Expect := NewWithT(t).Expect
	chart := t.TempDir()
	Expect(os.Mkdir(filepath.Join(chart, "templates"), 0o700)).To(Succeed())
	for name, content := range map[string]string{
		"Chart.yaml":          "apiVersion: v2\nname: small\nversion: 0.1.0\n",
		"values.yaml":         "colour: red\n",
		"templates/objs.yaml": chartTemplate,
	} {
		Expect(os.WriteFile(filepath.Join(chart, name), []byte(content), 0o600)).To(Succeed())
	}
	objects, err := controlplane.RenderChart(t.Context(), chart, controlplane.ChartOptions{
		Namespace: "heirloom-system",
		Values:    map[string]any{"colour": "green"},
		Hooks:     hooks,
	})
	Expect(err).NotTo(HaveOccurred())
	return objects
}
