// SPDX-License-Identifier: Apache-2.0

package inherit

import "slices"

//go:generate go run ./rulesdoc ../../docs/rules.md

// Rule is a row of the table of inheritance rules (docs/design.md §1). Each stands beside the code that it is about; the page
// docs/rules.md is made of them, and the conformance test holds the program to them.
type Rule struct {
	Number int
	// From is the owner, To the child, with the paths of v1beta2.
	From, To string
	// What is carried from the one to the other.
	Labels, Annotations, Taints, Fields Flow
	// Source is where Cluster API says or does the same, or why Heirloom does more.
	Source string
	// Code is the function that is the rule, or empty where nothing is carried.
	Code string
}

// Flow says how one sort of content is carried.
type Flow struct {
	// Carried says whether it is at all.
	Carried bool
	// How is the rest, for people.
	How string
}

// Rules returns all rules, by number.
func Rules() []Rule {
	rules := slices.Concat(rulesOfTopology(), rulesOfMachineSet(), rulesOfMachine(), rulesOfNode(), rulesOfNothing())
	slices.SortFunc(rules, func(a, b Rule) int { return a.Number - b.Number })
	return rules
}

// The pages of Cluster API's book that the rules come from.
const (
	metadataBook     = "[Metadata propagation](https://cluster-api.sigs.k8s.io/reference/api/metadata-propagation)"
	clusterClassBook = metadataBook + " and [ClusterClass](https://cluster-api.sigs.k8s.io/tasks/experimental-features/cluster-class/)"
	taintsProposal   = "[Machine taints](https://github.com/kubernetes-sigs/cluster-api/blob/main/docs/proposals/20250513-propogate-taints.md)"
)

// rulesOfNothing are rules 7 and 10: that an object's own metadata is about itself.
func rulesOfNothing() []Rule {
	return []Rule{
		{Number: 7, From: "MachineSet `metadata`", To: "nothing", Source: metadataBook},
		{
			Number: 10, From: "ControlPlane, MachineDeployment and MachinePool `metadata`, apart from the above",
			To: "nothing", Source: metadataBook,
		},
	}
}

func carried(how string) Flow { return Flow{Carried: true, How: how} }
