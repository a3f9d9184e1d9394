// SPDX-License-Identifier: Apache-2.0

// Package rules describes every inheritance rule, for people: docs/rules.md is generated from it, and the conformance test checks the
// program against it, row by row. The program does not link it.
package rules

import (
	"strings"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

//go:generate go run ./rulesdoc ../../pkg/inherit ../../docs/rules.md

// Rule is a row of the table.
type Rule struct {
	Number int
	// From is the owner, To the child, with the paths of v1beta2.
	From, To string
	// Labels, Annotations, Taints and Fields describe how entries are inherited.
	Labels, Annotations, Taints, Fields Flow
	// Source is the address of the page with the same rule of Cluster API, or with the reason for the rule.
	Source string
	// Code names the functions of pkg/inherit that implement the rule. It is empty if nothing is inherited.
	Code string
}

// Flow says how one type of entry is inherited.
type Flow struct {
	// Carried says whether the entries are inherited at all.
	Carried bool
	// How has more details, for people.
	How string
}

// The pages that are the sources of the rules.
const (
	metadataBook     = "https://cluster-api.sigs.k8s.io/reference/api/metadata-propagation"
	clusterClassBook = "https://cluster-api.sigs.k8s.io/tasks/experimental-features/cluster-class/"
	taintsProposal   = "https://github.com/kubernetes-sigs/cluster-api/blob/main/docs/proposals/20250513-propogate-taints.md"
	scaleFromZero    = "https://github.com/kubernetes/autoscaler/tree/master/cluster-autoscaler/cloudprovider/clusterapi#scale-from-zero-support"
)

func carried(how string) Flow { return Flow{Carried: true, How: how} }

// All returns every rule by which an object inherits from another, by number.
func All() []Rule {
	return append(topology(), workers()...)
}

// FieldNames returns the paths of the in-place fields that all Machines inherit, and of the fields that only workers inherit.
func FieldNames() (all, ofWorkers []string) {
	ofControlPlane := inherit.ControlPlaneLayout("", func(...string) bool { return true }).Template.Fields
	for f, path := range inherit.MachineLayout.Top.Fields {
		if name := strings.Join(path[1:], "."); ofControlPlane[f] == nil {
			ofWorkers = append(ofWorkers, name)
		} else {
			all = append(all, name)
		}
	}
	return all, ofWorkers
}

// topology returns the rules for the declarations of a ClusterClass and of the topology of a Cluster.
func topology() []Rule {
	labels, annotations := carried("merged, the Cluster's win"), carried("merged, the Cluster's win")
	patched := "; in `metadata`, [the ClusterClass's patches](design.md#1-inheritance-rules) win"
	fields, ofWorkers := FieldNames()
	quoted := func(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }
	return []Rule{
		{
			Number: 1, From: "ClusterClass `spec.controlPlane` + Cluster `spec.topology.controlPlane`",
			To:     "ControlPlane `metadata`, and `spec.machineTemplate.metadata` if the class has `machineInfrastructure`",
			Labels: carried(labels.How + patched), Annotations: carried("as for labels"),
			Taints: carried("the Cluster's list replaces the ClusterClass's; into `spec.machineTemplate.spec.taints`, or " +
				"`spec.machineTemplate.taints` by the v1beta1 contract, whichever the kind has"),
			Fields: carried(quoted(fields) + "; the Cluster's replace the ClusterClass's"),
			Source: clusterClassBook, Code: "Policy.ControlPlane",
		},
		{
			Number: 2, From: "ClusterClass `spec.workers.machineDeployments[class]` + Cluster `spec.topology.workers.machineDeployments[name]`",
			To:     "MachineDeployment `metadata` and `spec.template.metadata`",
			Labels: labels, Annotations: annotations,
			Taints: carried("as in rule 1, into `spec.template.spec.taints`"),
			Fields: carried("as in rule 1, and " + quoted(ofWorkers)),
			Source: clusterClassBook, Code: "Policy.MachineDeployment",
		},
		{
			Number: 3, From: "ClusterClass `spec.workers.machinePools[class]` + Cluster `spec.topology.workers.machinePools[name]`",
			To:     "MachinePool `metadata` and `spec.template.metadata`",
			Labels: labels, Annotations: annotations,
			Taints: carried("as in rule 1, but as annotations of `spec.template.metadata`: Cluster API refuses typed taints there"),
			Fields: carried("as in rule 2, without readiness gates"),
			Source: clusterClassBook,
			Code:   "Policy.MachinePool",
		},
	}
}

// workers returns the rules for Machines and, from them, Nodes.
func workers() []Rule {
	return []Rule{
		{
			Number: 4, From: "ControlPlane `spec.machineTemplate`", To: "Machine, and `metadata` of its InfraMachine and BootstrapConfig",
			Labels: carried(""), Annotations: carried(""), Taints: carried("Machine `spec.taints`"), Fields: carried("Machine"),
			Source: metadataBook, Code: "Policy.MachineFrom, Policy.External",
		},
		{
			Number: 5, From: "MachineDeployment `metadata`", To: "MachineSet `metadata`",
			Annotations: carried("without keys that are never inherited, and without bookkeeping"),
			Source:      metadataBook, Code: "Policy.MachineSet",
		},
		{
			Number: 6, From: "MachineDeployment `spec.template`", To: "MachineSet `spec.template`, and `metadata` for labels",
			Labels: carried(""), Annotations: carried("template to template only"), Taints: carried("`spec.template.spec.taints`"),
			Fields: carried(""), Source: metadataBook, Code: "Policy.MachineSet",
		},
		{Number: 7, From: "MachineSet `metadata`", To: "nothing", Source: metadataBook},
		{
			Number: 8, From: "MachineSet `spec.template`", To: "Machine, and `metadata` of its InfraMachine and BootstrapConfig",
			Labels: carried(""), Annotations: carried(""), Taints: carried("Machine `spec.taints`"), Fields: carried("Machine"),
			Source: metadataBook, Code: "Policy.MachineFrom, Policy.External",
		},
		{
			Number: 9, From: "MachinePool `spec.template`", To: "Machines of the MachinePool, or Nodes where the provider has no Machines",
			Labels: carried(""), Annotations: carried(""), Taints: carried("annotated, and typed where there are any"), Fields: carried("Machine"),
			Source: metadataBook, Code: "Policy.MachineFrom, Policy.SourceForPool",
		},
		{
			Number: 10, From: "ControlPlane, MachineDeployment and MachinePool `metadata`, apart from the above",
			To: "nothing", Source: metadataBook,
		},
		{
			Number: 11, From: "Machine `metadata.labels`", To: "Node labels",
			Labels: carried("prefix `node-role.kubernetes.io`; domains `node-restriction.kubernetes.io` and `node.cluster.x-k8s.io` " +
				"with their subdomains; keys that a regex of `--additional-sync-machine-labels` matches, or that [`sync.heirloom.dev/labels`](keys-per-cluster.md) names; " +
				"[facts](facts.md) of the Machine and its InfraMachine; the role of `--worker-role`"),
			Source: metadataBook, Code: "Policy.PlanNode, nodeWrite.metadata, NodeSource.WithFacts",
		},
		{
			Number: 12, From: "Machine `metadata.annotations`", To: "Node annotations",
			Annotations: carried("domain `node.cluster.x-k8s.io` with its subdomains; keys that a regex of " +
				"`--additional-sync-machine-annotations` matches, or that [`sync.heirloom.dev/annotations`](keys-per-cluster.md) names"),
			Source: metadataBook, Code: "Policy.PlanNode, nodeWrite.metadata",
		},
		{
			Number: 13, From: "Machine `spec.taints` and taint annotations", To: "Node `spec.taints`",
			Taints: carried("`Always`, and `OnInitialization` (annotations `initialize` and `until`)"),
			Source: taintsProposal, Code: "Policy.PlanNode, nodeWrite.taints",
		},
	}
}

// Capacity returns the rule about cluster-autoscaler. It is not a row of the table: by it, no object inherits from another.
func Capacity() Rule {
	return Rule{
		Number: 14, From: "MachineDeployment, MachinePool, and MachineSet without a MachineDeployment: `spec.template`",
		To: "its own `metadata.annotations`",
		Annotations: carried("labels in `" + inherit.CapacityLabelsAnnotation + "`, taints in `" + inherit.CapacityTaintsAnnotation + "`; " +
			"the entries that rules 11 and 13 would give to a new Node"),
		Source: scaleFromZero, Code: "Policy.Capacity",
	}
}
