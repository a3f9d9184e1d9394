// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

func TestWaitedAddsALineForEachWait(t *testing.T) {
	Expect := NewWithT(t).Expect
	file := filepath.Join(t.TempDir(), "waits")
	t.Setenv("HEIRLOOM_WAITS", file)
	controlplane.Waited("a bus", time.Now().Add(-90*time.Second))
	controlplane.Waited("a train", time.Now())
	content, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	Expect(string(content)).To(Equal("90.0\ta bus\n0.0\ta train\n"))
}

func TestWaitedWithoutAFileIsSilent(t *testing.T) {
	t.Setenv("HEIRLOOM_WAITS", "")
	controlplane.Waited("nothing", time.Now())
}
