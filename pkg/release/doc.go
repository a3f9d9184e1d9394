// SPDX-License-Identifier: Apache-2.0

// Package release gives up everything that Heirloom owns or tracks, so that nothing of it is left when it is uninstalled:
// what field manager heirloom owns in objects of Cluster API and of its providers, what Heirloom's own annotations list on
// Nodes, and what it has made in workload clusters.
//
// It works while Heirloom does not, because that would propagate again what is given up. So it begins with the webhook
// configurations and the Lease of the leader. It goes by what is recorded in the objects and not by the rules, so it needs no
// owner to be there.
package release
