// SPDX-License-Identifier: Apache-2.0

package integration

import "testing"

func testKubectlRelease(t *testing.T, _ *kubectlWorld) {
	t.Skip("not written yet")
}
