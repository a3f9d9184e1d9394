// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

func TestReleases(t *testing.T) {
	Expect := NewWithT(t).Expect
	releases, err := controlplane.Releases(t.Context())
	Expect(err).NotTo(HaveOccurred())
	// The version of the second release changes with go.mod.
	Expect(releases).To(HaveExactElements(HaveField("Name", "v1.13.6"), HaveField("Name", HavePrefix("v1."))))
	Expect(controlplane.CAPICRDPaths()).To(Equal(releases[1].CRDPaths))
	for _, release := range releases {
		Expect(release.CRDPaths).To(And(HaveLen(3), HaveEach(And(BeADirectory(), ContainSubstring(release.Name)))))
	}
}
