// SPDX-License-Identifier: Apache-2.0

// Package connect reaches the workload clusters of a fleet, through Cluster API's own ClusterCache: one connection for
// each Cluster, made from the Secret <cluster>-kubeconfig, watched by health probes, and renewed when it breaks. What is
// cached of a workload cluster is its Nodes, trimmed to what the rules read.
package connect
