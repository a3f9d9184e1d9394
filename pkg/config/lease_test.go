// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestLeaderElectionID(t *testing.T) {
	Expect := NewWithT(t).Expect
	seen := map[string]string{}
	for _, namespace := range []string{"", "blue", "team-a", "blue,team-a"} {
		for _, filter := range []string{"", "blue", "green", "Blue", "Team_A", "team.a", "team-a"} {
			c := &Config{}
			if c.WatchFilter = filter; namespace != "" {
				c.Namespaces = strings.Split(namespace, ",")
			}
			id, what := c.LeaderElectionID(), namespace+"/"+filter
			Expect(validation.IsDNS1123Subdomain(id)).To(BeEmpty(), "%q must be the name of a Lease", id)
			Expect(seen).NotTo(HaveKey(id), "instances for %q and %q would elect one leader", what, seen[id])
			seen[id] = what
		}
	}
}
