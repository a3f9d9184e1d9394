// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"hash/crc32"
)

// LeaderElectionID is the name of the leader's Lease. It differs between instances that share a management cluster with disjoint
// watch filters or namespaces. A filter is a label value, which a Lease's name may not contain as it is; so it is hashed.
func (c *Config) LeaderElectionID() string {
	part := c.WatchFilter
	if c.Namespace != "" {
		part = c.Namespace + "/" + part // no label value has a slash
	}
	if part == "" {
		return "leader-election-heirloom"
	}
	return fmt.Sprintf("leader-election-heirloom-%08x", crc32.ChecksumIEEE([]byte(part)))
}
