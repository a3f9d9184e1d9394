// SPDX-License-Identifier: Apache-2.0

// Package whatif works out what a change would write, object by object, down to the Nodes, and writes nothing.
//
// The API server is asked first what the files would become, by a dry run. What it answers stands in a snapshot in front of what is
// stored. Everything below is then evaluated from the top, as webhooks and loop do it, and each result is put into the snapshot
// before the objects below it are evaluated.
//
//	files.go     the files, as the API server would store them
//	clusters.go  which Clusters they are about
//	evaluate.go  the objects of Cluster API and of providers
//	nodes.go     the Nodes of workload clusters
//	write.go     one write, and what changes in an object
//	taints.go    what new taints do to Pods; pods.go which Pods those are
//	result.go    the answer; group.go like ones together
//	show.go      LIVE and MERGED, and the program that compares them
package whatif
