// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// What the plugin has is what the chart makes; make generate writes it.
func TestThePluginHasTheChartsWebhooks(t *testing.T) {
	Expect := NewWithT(t).Expect
	root, err := controlplane.RepositoryRoot(t.Context())
	Expect(err).NotTo(HaveOccurred())
	made := t.TempDir()
	Expect(run(t.Context(), []string{made})).To(Succeed())
	for _, name := range []string{"default.yaml", "others.yaml"} {
		want, err := os.ReadFile(filepath.Join(made, name))
		Expect(err).NotTo(HaveOccurred())
		has, err := os.ReadFile(filepath.Join(root, "cmd", "kubectl-heirloom", "check", "registrations", name))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(has)).To(Equal(string(want)), "run make generate: %s", name)
	}
}
