// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// The chart, the documents and the tests have the same minor version as the oldest supported Kubernetes.
func TestOldestKubernetes(t *testing.T) {
	Expect := NewWithT(t).Expect
	root, err := controlplane.RepositoryRoot(t.Context())
	Expect(err).NotTo(HaveOccurred())
	read := func(path ...string) string {
		content, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
		Expect(err).NotTo(HaveOccurred())
		return string(content)
	}
	minor := func(module string) string {
		found := regexp.MustCompile(`k8s\.io/kubernetes v(1\.\d+)\.`).FindStringSubmatch(read("hack", "tools", module, "go.mod"))
		Expect(found).NotTo(BeNil(), module)
		return found[1]
	}
	oldest := minor("kubernetes-oldest")
	var chart struct{ KubeVersion string }
	Expect(yaml.Unmarshal([]byte(read("deploy", "chart", "heirloom", "Chart.yaml")), &chart)).To(Succeed())
	Expect(chart.KubeVersion).To(Equal(">=" + oldest + ".0-0"))
	for _, page := range []string{"README.md", "docs/getting-started.md", "deploy/chart/heirloom/README.md"} {
		Expect(read(filepath.FromSlash(page))).To(ContainSubstring("Kubernetes "+oldest), page)
	}
	Expect(read("docs", "support.md")).To(MatchRegexp(`(?m)^\| Kubernetes of the management cluster \| %s or later`, oldest))
	for _, module := range []string{"kubernetes-oldest", "kubernetes", "kubernetes-newest"} {
		Expect(read("docs", "coexistence.md")).To(MatchRegexp(`(?m)^\| v%s\.\d+ `, minor(module)), module)
	}
}
