// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// FreePort returns no port twice, although programs listen only later. With random choice alone, some of 400 ports would be equal.
func TestFreePortsDiffer(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	ports := sets.New[int]()
	for range 400 {
		port, err := controlplane.FreePort()
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(ports.Has(port)).To(BeFalse(), "port %d, twice", port)
		ports.Insert(port)
	}
}
