// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// poolCases returns the cases of rule 9.
func poolCases() []conformanceCase {
	return []conformanceCase{
		{rule: 9, child: "Machine", declares: columns(), set: func(l *descent) {
			l.create(l.cluster())
			l.child = l.machineOf(l.owns(l.pool(), l.from(templatePlace())), fakeMachine())
			l.into = []target{{machinePlace(), alsoTyped}}
		}},
		{rule: 9, child: "Node", declares: columns(), set: func(l *descent) {
			l.nodeOfPool(l.from(templatePlace()), l.onNode)
		}},
	}
}

// nodeOfPool makes the child a Node of a MachinePool whose provider has no Machines.
func (l *descent) nodeOfPool(declare func(map[string]any, state), arrives func(content) content) {
	l.cached = true
	l.createHome()
	l.child = l.node()
	pool := l.pool()
	set(pool.Object, []any{stage.ProviderID(l.child.GetName())}, "spec", "providerIDList")
	l.owns(pool, declare)
	l.into = []target{{nodePlace(), arrives}}
}

// nodeCases returns the cases of rules 11 to 13. Each rule is about one map or list of a Machine, which can hold no content
// of another column.
func nodeCases() []conformanceCase {
	var cases []conformanceCase
	for i, in := range []column{labelColumn, annotationColumn, taintColumn} {
		cases = append(cases, conformanceCase{rule: 11 + i, child: "Node", declares: []column{in}, set: func(l *descent) {
			l.cached = true
			l.createHome()
			ms := l.workers("MachineSet")
			l.create(ms)
			l.room = machinePlace()
			l.owns(l.machineOf(ms, fakeMachine()), func(object map[string]any, s state) {
				l.room.put(object, s.declared.and(s.witness))
			})
			l.child = l.node()
			l.into = []target{{nodePlace(), l.onNode}}
		}})
	}
	return cases
}

// onNode returns the part of a Machine's content that its Node has. OnInitialization taints arrive once, in the first state, and stay.
func (l *descent) onNode(c content) content {
	node := content{labelColumn: {}, annotationColumn: {}, taintColumn: {}}
	for key, value := range c[labelColumn] {
		if key == teamKey || key == tierLabel || key == extraKey || key == witnessKey {
			node[labelColumn][key] = value
		}
	}
	for key, value := range c[annotationColumn] {
		if key == teamKey || key == tierNote || key == extraKey {
			node[annotationColumn][key] = value
		}
	}
	for id, value := range alsoTyped(l.room.holds(l.script.states[0]))[taintColumn] {
		if strings.HasSuffix(value, "|OnInitialization") {
			node[taintColumn][id] = value
		}
	}
	for id, value := range alsoTyped(c)[taintColumn] {
		if strings.HasSuffix(value, "|Always") {
			node[taintColumn][id] = value
		}
	}
	return node.and()
}

// nothingCases returns the cases of rules 7 and 10: no child inherits the content of an owner's own metadata, but children inherit the
// content of its template. Rule 10 names MachineSets once more.
func nothingCases() []conformanceCase {
	machineSet := func(l *descent) *unstructured.Unstructured {
		return l.owns(l.workers("MachineSet"), l.fromMetadata(templatePlace()))
	}
	cases := childCases(7, "", machineSet, fakeMachine(), kubeadmConfig())
	for _, p := range conformingProviders() {
		if p.withoutMachines {
			continue
		}
		owner := func(l *descent) *unstructured.Unstructured {
			l.cached = true
			return l.owns(l.controlPlane(p), l.fromMetadata(p.template))
		}
		var externals []externalKind
		if p.kind == "KubeadmControlPlane" {
			externals = []externalKind{fakeMachine(), kubeadmConfig()}
		}
		cases = append(cases, childCases(10, " of "+p.kind, owner, externals...)...)
	}
	cases = append(cases,
		conformanceCase{rule: 10, child: "MachineSet of MachineDeployment", set: func(l *descent) {
			l.machineSetOf(l.owns(l.workers("MachineDeployment"), l.fromMetadata(templatePlace())))
			l.into = []target{{metadataPlace(), everything}, {templatePlace(), everything}}
		}},
		conformanceCase{rule: 10, child: "Machine of MachinePool", set: func(l *descent) {
			l.create(l.cluster())
			l.child = l.machineOf(l.owns(l.pool(), l.fromMetadata(templatePlace())), fakeMachine())
			l.into = []target{{machinePlace(), everything}}
		}},
		conformanceCase{rule: 10, child: "Node of MachinePool", set: func(l *descent) {
			l.nodeOfPool(l.fromMetadata(templatePlace()), everything)
		}},
	)
	for i := range cases {
		cases[i].declares = inMetadata()
		if cases[i].child == "MachineSet of MachineDeployment" {
			cases[i].declares = []column{labelColumn, taintColumn} // rule 5 covers annotations
		}
	}
	return cases
}
