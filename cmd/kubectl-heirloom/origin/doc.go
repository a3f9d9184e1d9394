// SPDX-License-Identifier: Apache-2.0

// Package origin tells where each label, annotation, taint and field of an object comes from, and why one is not there.
//
// It asks what webhooks and loop ask, package ownerchain: what the object inherits, and where that is declared. The answer is
// compared with what the object has, and package managedfields says what the next write would change. The rest was set on the object
// itself, and metadata.managedFields tells by whom.
//
//	explain.go   objects of Cluster API and of providers
//	declares.go  Clusters and ClusterClasses, which declare and do not inherit
//	node.go      Nodes
//	find.go      which Node is meant, and in which workload cluster
//	result.go    the answer: entries and notes
//	list.go      the answer for several objects
//	key.go       the answer for one key
//	table.go     the answer for people
//	place.go     one place of an object: what it has and what it inherits
//	content.go   what is at a place
//	managers.go  metadata.managedFields
//	notes.go     what else a reader should know
//	absent*.go   what is declared and not there, and why
package origin
