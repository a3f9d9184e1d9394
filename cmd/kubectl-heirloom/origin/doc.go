// SPDX-License-Identifier: Apache-2.0

// Package origin tells where each label, annotation and taint of an object comes from.
//
// It asks what webhooks and loop ask, package ownerchain: what the object inherits, and where that is declared. The answer is
// compared with what the object has. The rest was set on the object itself, and metadata.managedFields tells by whom.
//
//	explain.go   objects of Cluster API and of providers
//	node.go      Nodes
//	result.go    the answer: entries and notes
//	place.go     one place of an object: what it has and what it inherits
//	managers.go  metadata.managedFields
//	notes.go     what else a reader should know
package origin
