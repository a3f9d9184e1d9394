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

// column is one of those that the table of rules has for content.
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

// flow is what a row of the table says in a column.
func (c column) flow(rule rules.Rule) rules.Flow {
	return map[column]rules.Flow{
		labelColumn: rule.Labels, annotationColumn: rule.Annotations, taintColumn: rule.Taints, fieldColumn: rule.Fields,
	}[c]
}

// content is what an object has at one place, as names and values of each column, whatever the version of its API. A taint
// is named "<key>:<effect>" and has the value "<value>|<propagation>"; timeouts are in seconds; a readiness gate is named
// by its condition, see gate, and has its polarity as value.
type content map[column]map[string]string

const gate = "readinessGate "

// and returns all of the contents. Of the same name, the last one counts.
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

// script is what happens in the subtest of a column.
type script struct {
	// states are what the owner declares, one after the other; the last is nothing. In the second, values are others and
	// names are missing.
	states [4]content
	// mine is what a user has set on the child from the start.
	mine content
	// again is what a user sets on the child before the third state: names that the owner has declared before.
	again content
}

// Names of three sorts: those that every Cluster API syncs to Nodes, one that an operator's regex does, and one that stays
// on Cluster API's objects.
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

// scriptOfTaints declares taints in both ways: typed, where the owner can, and by annotation.
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

// expectFields expects the program's table of fields to be the one that is tested here: what is new in it needs a name in
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

// split divides what a control plane, a MachineDeployment or a MachinePool is to inherit among its ClusterClass and its
// Cluster's topology. Every other name of a map is the Cluster's, and the class has another value for it. Of lists, the
// Cluster has all, and the class another list.
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
			case in == annotationColumn: // it may be one that declares taints
				class[in][name], topology[in][name] = "overruled:NoSchedule", value
			default:
				class[in][name], topology[in][name] = "overruled", value
			}
		}
	}
	return class, topology
}

// alsoTyped is content of a Machine beside a Cluster API that propagates taints: those declared by annotation are typed
// as well.
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

// annotated is content of a MachinePool, in which typed taints are declared by annotation.
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

// taintOf reads "<key>=<value>:<effect>" or "<key>:<effect>".
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

// entriesOf reads a comma-separated list.
func entriesOf(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}
