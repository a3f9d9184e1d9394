// SPDX-License-Identifier: Apache-2.0

// Package lint judges manifests of Cluster API before anything is applied. It is pure: objects in, findings out.
//
// Nothing here says what is inherited. A world (world.go) holds the objects of the files, and the Machines and Nodes that would come
// of them. The owner chain and the rules of pkg/inherit decide about those, and lint compares what a file declares with what arrives:
//
//	lint.go      the order of things, and the report
//	rules.go     the rules and their severities
//	itself.go    what is wrong with one object
//	declared.go  what does not arrive
//	class.go     a topology and its ClusterClass
//	template.go  the template of a class's control plane
//	twice.go     taints that are declared in two ways
//	probe.go     questions to pkg/inherit
//	world.go, descend.go  the objects of the files, and those to come
//	text.go, sarif.go     the report for people and for programs
package lint
