// SPDX-License-Identifier: Apache-2.0

// Package inherit holds the inheritance rules of docs/design.md §1: given an owner and a child, what the child inherits, and for each
// entry that a rule leaves out, why.
//
// The package is pure: no client, no context, no logger, no clock. Webhooks, loop and plugin call the same rules, so they agree by
// construction. Where to find what:
//
//	rules 1-3      topology.go    ClusterClass and Cluster topology → control plane, MachineDeployment, MachinePool
//	rules 4-6, 8, 9  machine.go   templates → MachineSet, Machine, InfraMachine, BootstrapConfig
//	rules 11-13    node.go        Machine → Node; nodesource.go, record.go, eviction.go
//	rule 14        capacity.go    what cluster-autoscaler is told of Nodes to come
//	left out       drop.go        why a rule leaves an entry out; never.go: keys; fit.go: what has no room
//	order          effective.go   a Node inherits what its Machine will have
//	fields         fields.go      in-place fields; layout.go: where they are
//	skipped        skip.go        objects that are paused, being deleted or opted out
//	identity       match.go       which Machine a Node is
package inherit
