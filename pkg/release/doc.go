// SPDX-License-Identifier: Apache-2.0

// Package release gives up everything that Heirloom owns or tracks, so that nothing of it is left when it is uninstalled:
// what field manager heirloom owns in objects of Cluster API and of its providers, what Heirloom's own annotations list on
// Nodes, and what it has made in workload clusters.
//
// Heirloom must be stopped meanwhile, because it would propagate again what is given up. So a release begins with the webhook
// configurations and the Lease of the leader. It follows what is recorded in the objects and not the rules, so it needs no
// owners.
package release
