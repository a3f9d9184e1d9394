// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/rules"
)

// All possible declarations of a class and a Cluster for one kind. Entries of the class have class in their names.
const (
	allOfClass = "metadata: {labels: {class: a, node.cluster.x-k8s.io/class: a}, annotations: {class: a}}, " +
		"taints: [{key: class, effect: NoSchedule, propagation: Always}], deletion: {nodeDrainTimeoutSeconds: 1}, minReadySeconds: 2"
	allOfCluster = "metadata: {labels: {cluster: a, mine: a}, annotations: {cluster: a}}, deletion: {nodeDeletionTimeoutSeconds: 3}, readinessGates: [{conditionType: Cluster}]"
	allBelow     = "metadata: {labels: {below: a, mine: a, node.cluster.x-k8s.io/below: a, node-role.kubernetes.io/below: a}, annotations: {below: a, both: template, node.cluster.x-k8s.io/below: a, taints.heirloom.dev/always: 'annotated:NoSchedule'}}, " +
		"spec: {taints: [{key: below, effect: NoSchedule, propagation: Always}], deletion: {nodeVolumeDetachTimeoutSeconds: 4}, readinessGates: [{conditionType: Below}]}"
)

// everything is a fleet in which each object of the owner chain has its own declarations.
var everything = fleet{
	classes: map[string]string{"ns/cc": "{spec: {controlPlane: {machineInfrastructure: {templateRef: {name: t}}, " + allOfClass + "}, " +
		"workers: {machineDeployments: [{class: small, " + allOfClass + "}], machinePools: [{class: small, " + allOfClass + "}]}}}"},
	clusters: map[string]string{"ns/c": "{spec: {topology: {classRef: {name: cc}, controlPlane: {" + allOfCluster + "}, " +
		"workers: {machineDeployments: [{name: a, class: small, " + allOfCluster + "}], machinePools: [{name: a, class: small, " + allOfCluster + "}]}}}}"},
	deployments: map[string]string{"ns/md": "{metadata: {labels: {" + ofTopology + "}, annotations: {own: a, both: own, cluster: a}}, spec: {clusterName: c, template: {" + allBelow + "}}}"},
	sets:        map[string]string{"ns/ms": "{metadata: {labels: {" + ofTopology + "}, " + byDeployment + "}, spec: {clusterName: c, template: {" + allInherited + "}}}"},
	machines: map[string]string{"ns/m": "{metadata: {labels: {" + ofTopology + ", node.cluster.x-k8s.io/itself: a}, " + bySet + "}, " +
		"spec: {clusterName: c, taints: [{key: itself, effect: NoSchedule, propagation: Always}], infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: InfraMachine, name: x}}, status: {nodeRef: {name: node-1}}}"},
}

// allInherited is the template of a MachineSet that has inherited all declarations.
const allInherited = "metadata: {labels: {class: a, node.cluster.x-k8s.io/class: a, cluster: a, mine: a, set: a, below: a, node.cluster.x-k8s.io/below: a, node-role.kubernetes.io/below: a}, " +
	"annotations: {class: a, cluster: a, below: a, both: template, node.cluster.x-k8s.io/below: a, taints.heirloom.dev/always: 'annotated:NoSchedule'}}, " +
	"spec: {taints: [{key: class, effect: NoSchedule, propagation: Always}, {key: below, effect: NoSchedule, propagation: Always}], " +
	"deletion: {nodeDrainTimeoutSeconds: 1, nodeDeletionTimeoutSeconds: 3, nodeVolumeDetachTimeoutSeconds: 4}, minReadySeconds: 2, " +
	"readinessGates: [{conditionType: Cluster}, {conditionType: Below}]}"

// had holds the earlier state of an object, in YAML: labels, annotations, and the content of its Machine template or, for a Machine, of its
// spec.
type had struct{ labels, annotations, below string }

// taken returns an update of ns/x that removes all these entries.
func (h had) taken(kind, owner string) write {
	document := func(h had) string {
		apiVersion, spec := "cluster.x-k8s.io/v1beta2", "template: {"+h.below+"}"
		switch kind {
		case "AcmeControlPlane":
			apiVersion, spec = "controlplane.cluster.x-k8s.io/v1beta2", "machineTemplate: {"+h.below+"}"
		case "InfraMachine":
			apiVersion, spec = "infrastructure.cluster.x-k8s.io/v1beta2", ""
		case "Machine":
			spec = h.below
		}
		return described(apiVersion, kind, "labels: {"+ofTopology+h.labels+"}, annotations: {"+h.annotations+"}, "+owner, spec)
	}
	return write{kind: kind, object: document(had{}), old: document(h)}
}

func takenFromNode(labels, annotations, taints string) write {
	document := func(labels, annotations, taints string) string {
		return "{metadata: {name: node-1, labels: {" + labels + "}, annotations: {cluster.x-k8s.io/taints-from-machine: ''" + annotations + "}}, spec: {taints: [" + taints + "]}}"
	}
	return write{kind: "Node", object: document("", "", ""), old: document(labels, annotations, taints)}
}

// TestWarningsNameTheFieldToEdit: for every rule, a warning about a restored entry names the object and the field that declares it.
func TestWarningsNameTheFieldToEdit(t *testing.T) {
	const (
		topology, class, md = "Cluster ns/c (spec.topology.", "ClusterClass ns/cc (spec.", "MachineDeployment ns/md (spec.template."
		inTopology, inClass = topology + "workers.machineDeployments[a].", class + "workers.machineDeployments[small]."

		classTaint, belowTaint = "{key: class, effect: NoSchedule, propagation: Always}", "{key: below, effect: NoSchedule, propagation: Always}"
		annotatedTaint         = "{key: annotated, effect: NoSchedule, propagation: Always}"
		byMachine              = "ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, name: m, uid: m, controller: true}]"
	)
	capacity := func(labels, taints string) string {
		return described("cluster.x-k8s.io/v1beta2", "MachineDeployment", "annotations: {cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size: '3'"+labels+taints+"}",
			"template: {metadata: {labels: {node.cluster.x-k8s.io/mine: a}}, spec: {taints: [{key: mine, effect: NoSchedule, propagation: Always}]}}")
	}
	seen := map[int]bool{}
	for _, tc := range []struct {
		rule    int
		request write
		want    string
	}{
		{1, had{labels: ", class: a"}.taken("AcmeControlPlane", ""), class + "controlPlane.metadata.labels)"},
		{1, had{annotations: "cluster: a"}.taken("AcmeControlPlane", ""), topology + "controlPlane.metadata.annotations)"},
		{1, had{below: "metadata: {annotations: {cluster: a}}"}.taken("AcmeControlPlane", ""), topology + "controlPlane.metadata.annotations)"},
		{1, had{below: "spec: {taints: [" + classTaint + "]}"}.taken("AcmeControlPlane", ""), class + "controlPlane.taints)"},
		{1, had{below: "spec: {deletion: {nodeDrainTimeoutSeconds: 1}}"}.taken("AcmeControlPlane", ""), class + "controlPlane.deletion.nodeDrainTimeoutSeconds)"},

		{2, had{annotations: "cluster: a"}.taken("MachineDeployment", ""), inTopology + "metadata.annotations)"},
		{2, had{below: "spec: {taints: [" + classTaint + "]}"}.taken("MachineDeployment", ""), inClass + "taints)"},
		{2, had{below: "spec: {readinessGates: [{conditionType: Cluster}]}"}.taken("MachineDeployment", ""), inTopology + "readinessGates)"},

		{3, had{labels: ", cluster: a"}.taken("MachinePool", ""), topology + "workers.machinePools[a].metadata.labels)"},
		{3, had{below: "metadata: {annotations: {class: a}}"}.taken("MachinePool", ""), class + "workers.machinePools[small].metadata.annotations)"},
		{3, had{below: "metadata: {annotations: {taints.heirloom.dev/always: 'class:NoSchedule'}}"}.taken("MachinePool", ""), class + "workers.machinePools[small].taints)"},
		{3, had{below: "spec: {minReadySeconds: 2}"}.taken("MachinePool", ""), class + "workers.machinePools[small].minReadySeconds)"},

		{5, had{annotations: "own: a"}.taken("MachineSet", byDeployment), "MachineDeployment ns/md (metadata.annotations)"},
		{5, had{annotations: "both: own"}.taken("MachineSet", byDeployment), "MachineDeployment ns/md (metadata.annotations)"},

		{6, had{labels: ", below: a"}.taken("MachineSet", byDeployment), md + "metadata.labels)"},
		{6, had{labels: ", mine: a"}.taken("MachineSet", byDeployment), inTopology + "metadata.labels)"},
		{6, had{below: "metadata: {annotations: {below: a}}"}.taken("MachineSet", byDeployment), md + "metadata.annotations)"},
		{6, had{below: "spec: {taints: [" + belowTaint + "]}"}.taken("MachineSet", byDeployment), md + "spec.taints)"},

		{8, had{labels: ", below: a"}.taken("Machine", bySet), md + "metadata.labels)"},
		{8, had{labels: ", cluster: a"}.taken("Machine", bySet), inTopology + "metadata.labels)"},
		{8, had{labels: ", set: a"}.taken("Machine", bySet), "MachineSet ns/ms (spec.template.metadata.labels)"},
		{8, had{below: "taints: [" + classTaint + "]"}.taken("Machine", bySet), inClass + "taints)"},
		{8, had{below: "taints: [" + annotatedTaint + "]"}.taken("Machine", bySet), md + "metadata.annotations[taints.heirloom.dev/always])"},
		{8, had{below: "deletion: {nodeDrainTimeoutSeconds: 1}"}.taken("Machine", bySet), inClass + "deletion.nodeDrainTimeoutSeconds)"},
		{8, had{annotations: "cluster: a"}.taken("InfraMachine", byMachine), inTopology + "metadata.annotations)"},

		{11, takenFromNode("node.cluster.x-k8s.io/below: a", "", ""), md + "metadata.labels)"},
		{11, takenFromNode("node.cluster.x-k8s.io/itself: a", "", ""), "Machine ns/m (metadata.labels)"},
		{12, takenFromNode("", ", node.cluster.x-k8s.io/below: a", ""), md + "metadata.annotations)"},
		{13, takenFromNode("", "", "{key: class, effect: NoSchedule}"), inClass + "taints)"},
		{13, takenFromNode("", "", "{key: annotated, effect: NoSchedule}"), md + "metadata.annotations[taints.heirloom.dev/always])"},
		{13, takenFromNode("", "", "{key: itself, effect: NoSchedule}"), "Machine ns/m (spec.taints)"},

		{14, write{kind: "MachineDeployment", object: capacity("", ""), old: capacity(", "+inherit.CapacityLabelsAnnotation+": node.cluster.x-k8s.io/mine=a", "")}, "MachineDeployment ns/x (spec.template.metadata.labels)"},
		{14, write{kind: "MachineDeployment", object: capacity("", ""), old: capacity("", ", "+inherit.CapacityTaintsAnnotation+": 'mine:NoSchedule'")}, "MachineDeployment ns/x (spec.template.spec.taints)"},
	} {
		seen[tc.rule] = true
		t.Run(fmt.Sprintf("%d %s %s", tc.rule, tc.request.kind, tc.want), func(t *testing.T) {
			s := newServer(t, everything, nil, inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled})
			s.Chain.Layout = contract{fields: newer.fields + " spec.deletion.nodeDeletionTimeoutSeconds"}.ControlPlane
			response := s.asks(t, tc.request.request(t))
			NewWithT(t).Expect(response.Warnings).To(HaveExactElements(HaveSuffix("to change it, edit " + tc.want)))
		})
	}
	seen[4], seen[9] = true, true // owners of other kinds, where rule 8 has a MachineSet; TestMachineOwner has all of them
	for _, rule := range append(rules.All(), rules.Capacity()) {
		if rule.Code != "" {
			NewWithT(t).Expect(seen).To(HaveKey(rule.Number), "no warning about rule %d is tested", rule.Number)
		}
	}
}
