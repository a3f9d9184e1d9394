// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestLeaderElectionID(t *testing.T) {
	Expect := NewWithT(t).Expect
	seen := map[string]string{}
	for _, filter := range []string{"", "blue", "green", "Blue", "Team_A", "team.a", "team-a"} {
		c := &Config{}
		c.WatchFilter = filter
		id := c.LeaderElectionID()
		Expect(validation.IsDNS1123Subdomain(id)).To(BeEmpty(), "%q must be the name of a Lease", id)
		Expect(seen).NotTo(HaveKey(id), "instances with the watch filters %q and %q would elect one leader", filter, seen[id])
		seen[id] = filter
	}
}
