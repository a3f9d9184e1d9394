// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// testKubectlLint runs the entry of the repository's hook for pre-commit, without a kubeconfig: lint asks no API server.
func testKubectlLint(t *testing.T, w *kubectlWorld) {
	root, err := controlplane.RepositoryRoot(w.ctx)
	w.Expect(err).NotTo(HaveOccurred())
	content, err := os.ReadFile(filepath.Join(root, ".pre-commit-hooks.yaml"))
	w.Expect(err).NotTo(HaveOccurred())
	var hooks []struct{ Entry string }
	w.Expect(yaml.Unmarshal(content, &hooks)).To(Succeed())
	w.Expect(hooks).To(HaveLen(1))
	program, entry, _ := strings.Cut(hooks[0].Entry, " ")
	w.Expect(program).To(Equal(filepath.Base(w.plugin)))

	lint := func(files ...string) (stdout, stderr string, exitCode int) {
		return w.run(t, pluginRun{
			args: append(strings.Fields(entry), files...), dir: filepath.Join(root, "docs", "examples"), kubeconfig: filepath.Join(w.dir, "missing"),
		})
	}
	stdout, stderr, code := lint("gpu-pool/machinedeployment.yaml", "gpu-pool/pod.yaml")
	w.Expect(code).To(Equal(0), stderr)
	w.Expect(stdout).To(ContainSubstring("gpu-pool/machinedeployment.yaml:18: note HL006 "))
	stdout, _, code = lint("clusterclass/cluster.yaml", "clusterclass/clusterclass.yaml")
	w.Expect(code).To(Equal(1))
	w.Expect(stdout).To(ContainSubstring("clusterclass/cluster.yaml:33: warning HL009 "))
	_, stderr, code = lint("missing.yaml")
	w.Expect(code).To(Equal(2))
	w.Expect(stderr).To(ContainSubstring("missing.yaml"))
}
