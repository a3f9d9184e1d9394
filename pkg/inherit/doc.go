// SPDX-License-Identifier: Apache-2.0

// Package inherit holds the inheritance rules of docs/design.md §1: given an owner and a child, what the child inherits.
//
// The package is pure: no client, no context, no logger. The webhooks and the resync loop both call it, so that what
// is answered in admission and what the loop applies are the same by construction. Where each rule lives:
//
//	rules 1-3   topology.go    ClusterClass and Cluster topology → control plane, MachineDeployment, MachinePool
//	            section.go     which part of a class and a topology is about an object
//	rules 5, 6  machineset.go  MachineDeployment → MachineSet
//	rules 4, 8, 9  machine.go, template.go  template of a control plane, MachineSet or MachinePool → Machine
//	            external.go    the same → InfraMachine, BootstrapConfig
//	rules 11-13 node.go, nodelabels.go  Machine → Node
//	rule 14     capacity.go    what cluster-autoscaler is told of Nodes to come
//	order       effective.go   a Node inherits what its Machine will carry
//	fields      fields.go      in-place mutable fields, in any version of the API
//	never       never.go       keys that no rule propagates
//	skipped     skip.go        objects that are paused, being deleted or opted out
//	identity    match.go       which Machine a Node is
package inherit
