// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/rules"
)

// column is a column for content in the table of rules.
type column string

const (
	labelColumn      column = "labels"
	annotationColumn column = "annotations"
	taintColumn      column = "taints"
	fieldColumn      column = "fields"
)

func columns() []column {
	return []column{labelColumn, annotationColumn, taintColumn, fieldColumn}
}

// flow returns the cell of a rule in this column.
func (c column) flow(rule rules.Rule) rules.Flow {
	return map[column]rules.Flow{
		labelColumn: rule.Labels, annotationColumn: rule.Annotations, taintColumn: rule.Taints, fieldColumn: rule.Fields,
	}[c]
}

// content is the content of an object at one place: names and values for each column, independent of the API version. A taint
// has the name "<key>:<effect>" and the value "<value>|<propagation>"; timeouts are in seconds; a readiness gate has its
// condition as name, see gate, and its polarity as value.
type content map[column]map[string]string

const gate = "readinessGate "

// and returns the union of the contents. If several contents have a name, the last value counts.
func (c content) and(others ...content) content {
	all := content{}
	for _, each := range append([]content{c}, others...) {
		for in, entries := range each {
			if len(entries) == 0 {
				continue
			}
			if all[in] == nil {
				all[in] = map[string]string{}
			}
			maps.Copy(all[in], entries)
		}
	}
	return all
}

func (c content) only(columns ...column) content {
	kept := content{}
	for _, in := range columns {
		if len(c[in]) > 0 {
			kept[in] = c[in]
		}
	}
	return kept
}

// script is the content that the objects in the subtest of a column get.
type script struct {
	// states are the declarations of the owner, one after the other; the last state declares nothing. The second state has other values
	// and lacks some names.
	states [4]content
	// mine is the content that a user has set on the child from the start.
	mine content
	// again is the content that a user sets on the child before the third state: names that the owner declared earlier.
	again content
}

// The names are of three sorts: every Cluster API syncs team and tier to Nodes, an operator's regular expression adds extra, and plain
// stays on Cluster API's objects.
const (
	teamKey   = "node.cluster.x-k8s.io/team"
	tierLabel = "node-role.kubernetes.io/tier"
	tierNote  = "below.node.cluster.x-k8s.io/tier"
	extraKey  = "extra.example.com/key"
	plainKey  = "plain"
	mineKey   = "mine.example.org/key"
)

func scriptOf(in column) script {
	switch in {
	case labelColumn:
		return scriptOfMap(labelColumn, tierLabel)
	case annotationColumn:
		return scriptOfMap(annotationColumn, tierNote)
	case taintColumn:
		return scriptOfTaints()
	default:
		return scriptOfFields()
	}
}

func scriptOfMap(in column, tier string) script {
	return script{
		states: [4]content{
			{in: {teamKey: "ml", tier: "gold", extraKey: "one", plainKey: "one"}},
			{in: {tier: "silver", extraKey: "two"}},
			{in: {tier: "bronze"}},
		},
		mine:  content{in: {mineKey: "yes", "node.cluster.x-k8s.io/mine": "yes"}},
		again: content{in: {teamKey: "by-a-user", plainKey: "by-a-user"}},
	}
}

// scriptOfTaints declares taints in both ways: as typed taints, if the owner has them, and as annotations.
func scriptOfTaints() script {
	return script{
		states: [4]content{
			{
				taintColumn: {
					"gpu:NoSchedule": "true|Always", "spare:NoSchedule": "one|Always", "keep:NoExecute": "|Always",
					"boot:NoSchedule": "up|OnInitialization",
				},
				annotationColumn: {
					taint.AlwaysAnnotation: "annotated=one:NoSchedule,bare:NoExecute", taint.InitializeAnnotation: "warm=one:PreferNoSchedule",
				},
			},
			{
				taintColumn: {"gpu:NoSchedule": "false|Always", "keep:NoExecute": "|Always", "boot:NoSchedule": "down|OnInitialization"},
				annotationColumn: {
					taint.AlwaysAnnotation: "annotated=two:NoSchedule", taint.InitializeAnnotation: "warm=two:PreferNoSchedule",
				},
			},
			{taintColumn: {"keep:NoExecute": "now|Always"}, annotationColumn: {taint.AlwaysAnnotation: "bare=now:NoExecute"}},
		},
		mine:  content{taintColumn: {"mine:NoSchedule": "yes|Always", "gpu:NoExecute": "mine|Always"}, annotationColumn: {mineKey: "yes"}},
		again: content{taintColumn: {"spare:NoSchedule": "by-a-user|Always"}},
	}
}

// expectFields expects the program's table of fields to equal the fields that this test covers. A new field needs a name in
// place.field and values in the script.
func expectFields(t *testing.T) {
	t.Helper()
	var tested []string
	for _, name := range timeoutNames("minReadySeconds", gate) {
		path, _ := newerFields().field(name)
		tested = append(tested, strings.Join(path, "."))
	}
	all, ofWorkers := rules.FieldNames()
	NewWithT(t).Expect(slices.Concat(all, ofWorkers)).To(ConsistOf(tested))
}

func scriptOfFields() script {
	return script{
		states: [4]content{
			{fieldColumn: {
				"nodeDrainTimeout": "10", "nodeVolumeDetachTimeout": "20", "minReadySeconds": "5",
				gate + "example.com/Warm": "Negative", gate + "example.com/Wired": "",
			}},
			{fieldColumn: {"nodeVolumeDetachTimeout": "95", "minReadySeconds": "6", gate + "example.com/Wired": "Positive"}},
			{fieldColumn: {"nodeVolumeDetachTimeout": "30", gate + "example.com/Wired": "Negative"}},
		},
		mine:  content{fieldColumn: {"nodeDeletionTimeout": "99", gate + "example.org/Mine": ""}},
		again: content{fieldColumn: {"nodeDrainTimeout": "77", gate + "example.com/Warm": ""}},
	}
}

// split divides the declarations for a control plane, a MachineDeployment or a MachinePool between its ClusterClass and its
// Cluster's topology. The Cluster has every other name of a map, and the class another value for it. The Cluster has all items of a
// list, and the class another list.
func split(declared content) (class, topology content) {
	class, topology = content{}, content{}
	for in, entries := range declared {
		class[in], topology[in] = map[string]string{}, map[string]string{}
		for i, name := range slices.Sorted(maps.Keys(entries)) {
			value := entries[name]
			switch {
			case in == taintColumn:
				class[in]["of-the-class:NoSchedule"] = "|Always"
				topology[in][name] = value
			case strings.HasPrefix(name, gate):
				class[in][gate+"example.com/OfTheClass"] = ""
				topology[in][name] = value
			case i%2 == 0:
				class[in][name] = value
			case in == fieldColumn:
				class[in][name], topology[in][name] = "999", value
			case in == annotationColumn: // the annotation may declare taints
				class[in][name], topology[in][name] = "overruled:NoSchedule", value
			default:
				class[in][name], topology[in][name] = "overruled", value
			}
		}
	}
	return class, topology
}

// alsoTyped returns the content of a Machine with a Cluster API that propagates taints: taints from annotations are also typed
// taints.
func alsoTyped(c content) content {
	typed := content{taintColumn: {}}
	for name, propagation := range map[string]clusterv1.MachineTaintPropagation{
		taint.InitializeAnnotation: clusterv1.MachineTaintPropagationOnInitialization,
		taint.AlwaysAnnotation:     clusterv1.MachineTaintPropagationAlways,
	} {
		for _, declared := range entriesOf(c[annotationColumn][name]) {
			id, value := taintOf(declared)
			typed[taintColumn][id] = value + "|" + string(propagation)
		}
	}
	return typed.and(c)
}

// annotated returns the content of a MachinePool: its typed taints become annotations.
func annotated(c content) content {
	lists := content{annotationColumn: {}}
	for name, propagation := range map[string]string{taint.AlwaysAnnotation: "|Always", taint.InitializeAnnotation: "|OnInitialization"} {
		list := entriesOf(c[annotationColumn][name])
		for id, value := range c[taintColumn] {
			if value, ok := strings.CutSuffix(value, propagation); ok {
				list = append(list, formatTaint(id, value))
			}
		}
		if slices.Sort(list); len(list) > 0 {
			lists[annotationColumn][name] = strings.Join(list, ",")
		}
	}
	return c.only(labelColumn, annotationColumn, fieldColumn).and(lists)
}

// taintOf parses "<key>=<value>:<effect>" or "<key>:<effect>".
func taintOf(declared string) (id, value string) {
	key, effect, _ := strings.Cut(declared, ":")
	key, value, _ = strings.Cut(key, "=")
	return key + ":" + effect, value
}

func formatTaint(id, value string) string {
	if value == "" {
		return id
	}
	return strings.Replace(id, ":", "="+value+":", 1)
}

// entriesOf splits a comma-separated list.
func entriesOf(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}
