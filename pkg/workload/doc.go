// SPDX-License-Identifier: Apache-2.0

// Package workload has the names of the ways to admit the Nodes of workload clusters. Below it, connect reaches these
// clusters, and webhook and policy are what is set up in them.
package workload
