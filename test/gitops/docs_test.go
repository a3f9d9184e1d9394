// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// manifests returns the manifests in docs/gitops.md, by kind.
func manifests(s *scene) map[string]unstructured.Unstructured {
	s.t.Helper()
	page, err := os.ReadFile(filepath.Join("docs", "gitops.md"))
	s.Expect(err).NotTo(HaveOccurred())
	all := map[string]unstructured.Unstructured{}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1) {
		objects, err := controlplane.DecodeObjects(string(block[1]))
		s.Expect(err).NotTo(HaveOccurred())
		for _, o := range objects {
			s.Expect(all).NotTo(HaveKey(o.GetKind()))
			all[o.GetKind()] = o
		}
	}
	return all
}

// read decodes an object as its tool's own type, which must have every field.
func read[T any](s *scene, from unstructured.Unstructured) T {
	s.t.Helper()
	var into T
	raw, err := yaml.Marshal(from.Object)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(yaml.UnmarshalStrict(raw, &into)).To(Succeed())
	return into
}

// The tools accept the manifests on the page, which name this repository's chart, with values that it has.
func TestThePage(t *testing.T) {
	s := bareScene(t)
	all := manifests(s)
	s.Expect(all).To(And(HaveLen(4), HaveKey("Application")))

	application := all["Application"].Object
	s.Expect(argo{application: application}.ask(s, "hooks", nil)).To(BeEmpty(), "Argo CD reads it")
	s.installs(application, "spec", "source", "path")
	s.renders(application, "spec", "source", "helm", "valuesObject")
	name, _, err := unstructured.NestedString(application, "spec", "source", "helm", "releaseName")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(all["Application"]).To(HaveField("GetName()", name), "tracking by label writes it into app.kubernetes.io/instance")

	release, source := read[helmv2.HelmRelease](s, all["HelmRelease"]), read[sourcev1.GitRepository](s, all["GitRepository"])
	s.Expect(release.APIVersion).To(Equal(helmv2.GroupVersion.String()))
	s.Expect(source.APIVersion).To(Equal(sourcev1.GroupVersion.String()))
	s.Expect(release.Spec.Chart.Spec.SourceRef.Kind).To(Equal(source.Kind))
	s.Expect(release.Spec.Chart.Spec.SourceRef.Name).To(Equal(source.Name))
	s.Expect(release.Spec.TargetNamespace).To(Equal(stage.Namespace))
	s.Expect(release.GetUninstall().DisableHooks).To(BeFalse())
	s.installs(all["HelmRelease"].Object, "spec", "chart", "spec", "chart")
	s.renders(all["HelmRelease"].Object, "spec", "values")

	clusters := read[kustomizev1.Kustomization](s, all["Kustomization"])
	s.Expect(clusters.APIVersion).To(Equal(kustomizev1.GroupVersion.String()))
	s.Expect(clusters.Spec.DependsOn).NotTo(BeEmpty())
}

// installs expects that a manifest has the path of the chart.
func (s *scene) installs(manifest map[string]any, path ...string) {
	s.t.Helper()
	chart, _, err := unstructured.NestedString(manifest, path...)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(filepath.Join(strings.Split(chart, "/")...)).To(Equal(filepath.Join("deploy", "chart", "heirloom")))
	s.Expect(filepath.Join(chart, "Chart.yaml")).To(BeAnExistingFile())
}

// renders expects that the chart accepts the values.
func (s *scene) renders(manifest map[string]any, path ...string) {
	s.t.Helper()
	values, found, err := unstructured.NestedMap(manifest, path...)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(found).To(BeTrue())
	options := controlplane.ChartOptions{Namespace: stage.Namespace, Values: values}
	_, err = controlplane.RenderChart(s.ctx, filepath.Join("deploy", "chart", "heirloom"), options)
	s.Expect(err).NotTo(HaveOccurred())
}
