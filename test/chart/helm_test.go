// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// Tests and the demo render the chart with Helm's packages. The helm command of operators has the same result; Helm 3 only changes the
// order of the objects.
func TestRenderingEqualsHelm(t *testing.T) {
	type command = func(ctx context.Context, kubeconfig string, args ...string) (stdout, stderr string, err error)
	for _, tc := range []struct {
		name string
		over values
	}{
		{"as it is", nil},
		{"everything", everything()},
		{"its own certificate", values{"certificates": values{"mode": "self"}}},
	} {
		for name, helm := range map[string]command{"Helm 4": controlplane.Helm, "Helm 3": controlplane.Helm3} {
			t.Run(tc.name+" by "+name, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				content, err := json.Marshal(tc.over) // JSON is YAML
				Expect(err).NotTo(HaveOccurred())
				file := filepath.Join(t.TempDir(), "values.yaml")
				Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
				// Without --kube-version, Helm 3 assumes an old version of Kubernetes.
				out, _, err := helm(t.Context(), os.DevNull,
					"template", "heirloom", chartDir(t), "--namespace", releaseNamespace, "--values", file, "--no-hooks", "--kube-version=1.36.0")
				Expect(err).NotTo(HaveOccurred())
				ofHelm, err := controlplane.DecodeObjects(out)
				Expect(err).NotTo(HaveOccurred())
				Expect(ofHelm).NotTo(BeEmpty())
				ours, err := render(t, tc.over)
				Expect(err).NotTo(HaveOccurred())
				Expect(cmp.Diff(ofHelm, ours, cmpopts.SortSlices(before))).To(BeEmpty())
				_, _, err = helm(t.Context(), os.DevNull, "lint", chartDir(t), "--strict", "--values", file, "--kube-version=1.36.0")
				Expect(err).NotTo(HaveOccurred())
			})
		}
	}
}

func before(a, b unstructured.Unstructured) bool {
	return a.GetKind()+a.GetNamespace()+"/"+a.GetName() < b.GetKind()+b.GetNamespace()+"/"+b.GetName()
}
