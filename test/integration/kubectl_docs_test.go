// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	. "github.com/onsi/gomega"
)

func testKubectlDocs(t *testing.T, w *kubectlWorld) {
	out, stderr, code := w.kubectl(t, "explain", "machine/prod-gpu-1")
	w.Expect(code).To(BeZero(), stderr)
	t.Log(out, stderr)
}
