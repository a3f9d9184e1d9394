// SPDX-License-Identifier: Apache-2.0

package integration

import "testing"

func testKubectlCheck(t *testing.T, w *kubectlWorld) {
	out, stderr, code := w.kubectl(t, "check")
	t.Log(code, "\n", out, stderr)
}
