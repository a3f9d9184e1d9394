// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/cluster-api/feature"
)

func TestVersionOf(t *testing.T) {
	for _, tc := range []struct{ image, label, want string }{
		{"ghcr.io/x/heirloom:v0.3.0", "v0.2.0", "v0.3.0"},
		{"localhost:5000/heirloom:v0.3.0@sha256:abc", "v0.2.0", "v0.3.0"},
		{"localhost:5000/heirloom@sha256:abc", "v0.2.0", "v0.2.0"},
		{"localhost:5000/heirloom", "", ""},
		{"heirloom:latest", "v0.2.0", "v0.2.0"},
		{"heirloom:latest", "", "latest"},
	} {
		NewWithT(t).Expect(versionOf(tc.image, tc.label)).To(Equal(tc.want), tc.image)
	}
}

func TestCompare(t *testing.T) {
	const older, newer = "is older than", "is newer than"
	for _, tc := range []struct{ plugin, server, want string }{
		{"v0.3.0", "v0.3.0", ""},
		{"v0.3.0", "0.3.0", ""},
		{"v0.2.9", "v0.3.0", older},
		{"v0.10.0", "v0.9.0", newer},
		{"v0.3.0-rc.1", "v0.3.0", older},
		{"v0.3.0", "v0.3.0-rc.1", newer},
		// git describe: some commits after a release, which is not a pre-release of it.
		{"v0.3.0-4-gabc1234", "v0.3.0", ""},
		{"v0.3.0-4-gabc1234-dirty", "v0.4.0", older},
		{"v0.3.0", "v0.2.0-4-gabc1234", newer},
		{"v0.3.0-rc.1-2-gabc1234", "v0.3.0-rc.1", ""},
		// Not comparable.
		{"(devel)", "v0.3.0", ""},
		{"v0.0.0-20261122101010-abcdef123456", "v0.3.0", ""},
		{"v0.3.1-0.20261122101010-abcdef123456+dirty", "v0.3.0", ""},
		{"abc1234", "v0.3.0", ""},
		{"v0.3.0", "latest", ""},
		{"v0.3.0", "", ""},
	} {
		t.Run(tc.plugin+" and "+tc.server, func(t *testing.T) {
			s := Settings{Version: tc.server}
			s.compare(tc.plugin)
			if tc.want == "" {
				NewWithT(t).Expect(s.Notes).To(BeEmpty())
			} else {
				NewWithT(t).Expect(s.Notes).To(ConsistOf(ContainSubstring(tc.want)))
			}
		})
	}
}

// What the plugin takes for Cluster API's default is that of the release that the module requires.
func TestClusterAPIsDefault(t *testing.T) {
	NewWithT(t).Expect(feature.Gates.Enabled(featureGate)).To(BeFalse())
	NewWithT(t).Expect(newerThanKnown("v1.14.9")).To(BeFalse())
	NewWithT(t).Expect(newerThanKnown("v1.15.0")).To(BeTrue())
	NewWithT(t).Expect(newerThanKnown("latest")).To(BeFalse())
	NewWithT(t).Expect(PropagationOf(core("x/y r/c:v1.13.0 --feature-gates=AllAlpha=true")).String()).To(Equal("enabled"))
}
