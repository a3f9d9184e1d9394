// SPDX-License-Identifier: Apache-2.0

// Package origin tells where each label, annotation and taint of an object comes from.
//
// The rules are those of pkg/inherit: what they bring to a child is compared with what the child has, one step of the
// owner chain after the other. What they do not bring was set on the object itself, and metadata.managedFields tells by
// whom. The package is pure: no client, no context, no logger.
//
//	explain.go   the answer: entries and notes
//	chain.go     the steps of the owner chain, by calling the rules
//	place.go     one place of an object: what it has and what it inherits
//	managers.go  metadata.managedFields
//	notes.go     what else a reader should know
package origin
