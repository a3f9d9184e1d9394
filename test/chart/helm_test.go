// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// Tests and the demo render the chart with Helm's packages. What operators do with the helm command has the same result.
func TestRenderingEqualsHelm(t *testing.T) {
	for _, tc := range []struct {
		name string
		over values
	}{
		{"as it is", nil},
		{"everything", everything()},
		{"its own certificate", values{"certificates": values{"mode": "self"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			content, err := json.Marshal(tc.over) // JSON is YAML
			Expect(err).NotTo(HaveOccurred())
			file := filepath.Join(t.TempDir(), "values.yaml")
			Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
			out, _, err := controlplane.Helm(t.Context(), os.DevNull,
				"template", "heirloom", chartDir(t), "--namespace", releaseNamespace, "--values", file, "--no-hooks")
			Expect(err).NotTo(HaveOccurred())
			ofHelm, err := controlplane.DecodeObjects(out)
			Expect(err).NotTo(HaveOccurred())
			Expect(ofHelm).NotTo(BeEmpty())

			ours, err := render(t, tc.over)
			Expect(err).NotTo(HaveOccurred())
			Expect(cmp.Diff(ofHelm, ours)).To(BeEmpty())
		})
	}
}
