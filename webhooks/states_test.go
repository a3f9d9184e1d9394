// SPDX-License-Identifier: Apache-2.0

package webhooks

import "fmt"

// state is what an owner declares at a time, and what a user sets then. The states, and what the names in them are good for, are those
// of the conformance test (test/integration): each value changes, names go missing, some cannot be inherited, and at last nothing is declared.
type state struct{ labels, annotations, taints, fields string }

func states() []state {
	return []state{
		{
			labels:      "node.cluster.x-k8s.io/team: ml, node-role.kubernetes.io/tier: gold, extra.example.com/key: one, plain: one, helm.sh/chart: x",
			annotations: "node.cluster.x-k8s.io/team: ml, below.node.cluster.x-k8s.io/tier: gold, extra.example.com/key: one, plain: one, helm.sh/chart: x",
			taints: typed("gpu", "true", "Always") + ", " + typed("spare", "one", "Always") + ", " + typed("boot", "up", "OnInitialization") +
				", {key: keep, effect: NoExecute, propagation: Always}",
			fields: "deletion: {nodeDrainTimeoutSeconds: 10, nodeVolumeDetachTimeoutSeconds: 20}, minReadySeconds: 5, " +
				"readinessGates: [{conditionType: example.com/Warm, polarity: Negative}, {conditionType: example.com/Wired}]",
		},
		{
			labels:      "node-role.kubernetes.io/tier: silver, extra.example.com/key: two",
			annotations: "below.node.cluster.x-k8s.io/tier: silver, extra.example.com/key: two",
			taints:      typed("gpu", "false", "Always") + ", {key: keep, effect: NoExecute, propagation: Always}, " + typed("boot", "down", "OnInitialization"),
			fields:      "deletion: {nodeVolumeDetachTimeoutSeconds: 95}, minReadySeconds: 6, readinessGates: [{conditionType: example.com/Wired, polarity: Positive}]",
		},
		{
			labels:      "node-role.kubernetes.io/tier: bronze",
			annotations: "below.node.cluster.x-k8s.io/tier: bronze, taints.heirloom.dev/always: 'annotated=one:NoSchedule,bare:NoExecute', taints.heirloom.dev/initialize: 'warm=one:PreferNoSchedule'",
			taints:      "{key: keep, value: now, effect: NoExecute, propagation: Always}",
			fields:      "deletion: {nodeVolumeDetachTimeoutSeconds: 30}, readinessGates: [{conditionType: example.com/Wired, polarity: Negative}]",
		},
		{
			labels: "node-role.kubernetes.io/tier: iron, node.cluster.x-k8s.io/bad: 'not valid'", taints: typed("node.kubernetes.io/reserved", "", "Always"),
			fields: "deletion: {nodeDrainTimeoutSeconds: -1}, readinessGates: [{conditionType: 'not valid'}]",
		},
		{},
	}
}

// byUsers are what users set on children: of their own, and what an owner declares.
func byUsers() []state {
	return []state{
		{},
		{
			labels: "mine.example.org/key: 'yes', plain: mine, node.cluster.x-k8s.io/mine: 'yes'", annotations: "mine.example.org/key: 'yes'",
			taints: typed("mine", "yes", "Always") + ", {key: gpu, value: mine, effect: NoExecute, propagation: Always}",
			fields: "deletion: {nodeDeletionTimeoutSeconds: 99}, readinessGates: [{conditionType: example.org/Mine}]",
		},
		{
			labels:      "node.cluster.x-k8s.io/team: by-a-user, plain: by-a-user",
			annotations: "node.cluster.x-k8s.io/team: by-a-user, taints.heirloom.dev/always: 'spare=mine:NoSchedule'",
			taints:      typed("spare", "by-a-user", "Always"),
			fields:      "deletion: {nodeDrainTimeoutSeconds: 77}, readinessGates: [{conditionType: example.com/Warm}]",
		},
	}
}

func typed(key, value, propagation string) string {
	return fmt.Sprintf("{key: %s, value: '%s', effect: NoSchedule, propagation: %s}", key, value, propagation)
}

// section is the state as ClusterClasses and topologies have it.
func (s state) section() string {
	return fmt.Sprintf("metadata: {labels: {%s}, annotations: {%s}}, taints: [%s], %s", s.labels, s.annotations, s.taints, s.fields)
}

// template is the state as a Machine template, with the label that is selected by.
func (s state) template() string {
	return fmt.Sprintf("template: {metadata: {labels: {selected: 'yes', %s}, annotations: {%s}}, spec: {taints: [%s], %s}}", s.labels, s.annotations, s.taints, s.fields)
}

// machine is a Machine to which the state has been set, by its owner's controller or by a user.
func (s state) machine() string {
	return fmt.Sprintf("{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {namespace: ns, name: x, uid: x, %s, labels: {selected: 'yes', %s}, annotations: {%s}, "+
		"managedFields: [{manager: manager, operation: Update, apiVersion: cluster.x-k8s.io/v1beta2, fieldsType: FieldsV1, fieldsV1: {'f:metadata': {'f:labels': {'f:selected': {}, 'f:plain': {}}}}}]}, "+
		"spec: {clusterName: c, providerID: 'aws://1', taints: [%s], %s}, status: {nodeRef: {name: node-1}}}", bySet, s.labels, s.annotations, s.taints, s.fields)
}

// below returns the objects of a Cluster in which an object of this kind declares the state, and the objects below it nothing yet.
func (s state) below(kind, machine string) fleet {
	declares := map[string]state{kind: s}
	inTopology := ""
	if kind == "ClusterClass" {
		inTopology = "labels: {" + ofTopology + "}, "
	}
	return fleet{
		classes:  map[string]string{"ns/cc": "{spec: {workers: {machineDeployments: [{class: small, " + declares["ClusterClass"].section() + "}]}}}"},
		clusters: map[string]string{"ns/c": "{spec: {topology: {classRef: {name: cc}, workers: {machineDeployments: [{name: a, class: small, metadata: {labels: {of: topology}}}]}}}}"},
		deployments: map[string]string{"ns/md": "{metadata: {namespace: ns, name: md, " + inTopology + "annotations: {own: '1'}}, spec: {clusterName: c, selector: {matchLabels: {selected: 'yes'}}, " +
			declares["MachineDeployment"].template() + "}}"},
		sets: map[string]string{"ns/ms": "{metadata: {namespace: ns, name: ms, labels: {cluster.x-k8s.io/deployment-name: md}, " + byDeployment + "}, spec: {clusterName: c, selector: {matchLabels: {selected: 'yes'}}, " +
			declares["MachineSet"].template() + "}}"},
		machines: map[string]string{"ns/x": machine},
	}
}
