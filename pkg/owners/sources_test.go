// SPDX-License-Identifier: Apache-2.0

package owners_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/rules"
)

// Declarations of each object of an owner chain. The name of an entry says who declares it; the Cluster and the template declare mine.
const (
	byClass = `metadata: {labels: {class: a}, annotations: {class: a}}, taints: [{key: class, effect: NoSchedule, propagation: Always}],
		deletion: {nodeDrainTimeoutSeconds: 1}, minReadySeconds: 2`
	byTopology = `metadata: {labels: {cluster: a, mine: a}, annotations: {cluster: a}}, readinessGates: [{conditionType: Cluster}]`
	byTemplate = `metadata: {labels: {below: a, mine: a}, annotations: {below: a, taints.heirloom.dev/always: 'annotated:NoSchedule'}},
		spec: {taints: [{key: below, effect: NoSchedule, propagation: Always}]}`
	inherited = `metadata: {labels: {class: a, cluster: a, mine: a, set: a, below: a},
		annotations: {cluster: a, below: a, taints.heirloom.dev/always: 'annotated:NoSchedule'}},
		spec: {taints: [{key: class, effect: NoSchedule, propagation: Always}], deletion: {nodeDrainTimeoutSeconds: 1}}`
)

// read reads YAML into an object.
func read[T client.Object](t *testing.T, object T, document string) T {
	t.Helper()
	NewWithT(t).Expect(yaml.Unmarshal([]byte(strings.ReplaceAll(document, "\t", "")), object)).To(Succeed())
	return object
}

// declaringAll returns an owner chain of a topology in which each object has its own declarations.
func declaringAll(t *testing.T) []client.Object {
	t.Helper()
	md := machineDeployment("md", also[*clusterv1.MachineDeployment](ofTopology))
	ms := machineSet("MachineDeployment/md", also[*clusterv1.MachineSet](ofTopology))
	m := machine("m", "MachineSet/ms", refers, also[*clusterv1.Machine](ofTopology, label("itself", "a")))
	m.Spec.Taints = []clusterv1.MachineTaint{{Key: "itself", Effect: "NoSchedule", Propagation: "Always"}}
	md.Annotations = map[string]string{"own": "a"}
	return []client.Object{
		read(t, managedCluster(), "spec: {topology: {controlPlane: {"+byTopology+"}, workers: {"+
			"machineDeployments: [{name: a, class: small, "+byTopology+"}], machinePools: [{name: a, class: small, "+byTopology+"}]}}}"),
		read(t, clusterClass(), "spec: {controlPlane: {machineInfrastructure: {templateRef: {name: t}}, "+byClass+"}, workers: {"+
			"machineDeployments: [{class: small, "+byClass+"}], machinePools: [{class: small, "+byClass+"}]}}"),
		read(t, md, "spec: {template: {"+byTemplate+"}}"), read(t, ms, "spec: {template: {"+inherited+"}}"), m,
	}
}

// For every rule, Heirloom names the object and the field that declare an entry: warnings and Events ask users to edit it.
func TestSourcesNameTheFieldToEdit(t *testing.T) {
	const (
		topology, class, md = "Cluster ns/c (spec.topology.", "ClusterClass ns/cc (spec.", "MachineDeployment ns/md (spec.template."
		inTopology, inClass = topology + "workers.machineDeployments[a].", class + "workers.machineDeployments[small]."
	)
	all := declaringAll(t)
	scaled := machineDeployment("x", also[*clusterv1.MachineDeployment](annotated(clusterv1.AutoscalerMaxSizeAnnotation, "3")))
	scaled = read(t, scaled, "spec: {template: {metadata: {labels: {node.cluster.x-k8s.io/mine: a}}, "+
		"spec: {taints: [{key: mine, effect: NoSchedule, propagation: Always}]}}}")
	objects := children()
	objects["Machine"].SetLabels(all[4].GetLabels())
	objects["MachineSet"].SetLabels(all[3].GetLabels())
	objects["scaled"] = scaled
	seen := map[int]bool{4: true, 9: true} // owners of other kinds, where rule 8 has a MachineSet; TestMachineOwner has all of them
	for _, tc := range []struct {
		rule                int
		object, entry, name string
		want                string
	}{
		{1, "ControlPlane", "label", "class", class + "controlPlane.metadata.labels)"},
		{1, "ControlPlane", "annotation", "cluster", topology + "controlPlane.metadata.annotations)"},
		{1, "ControlPlane", "taint", "class:NoSchedule", class + "controlPlane.taints)"},
		{1, "ControlPlane", "field", "nodeDrainTimeoutSeconds", class + "controlPlane.deletion.nodeDrainTimeoutSeconds)"},
		{2, "MachineDeployment", "annotation", "cluster", inTopology + "metadata.annotations)"},
		{2, "MachineDeployment", "taint", "class:NoSchedule", inClass + "taints)"},
		{2, "MachineDeployment", "field", "Cluster", inTopology + "readinessGates)"},
		{3, "MachinePool", "label", "cluster", topology + "workers.machinePools[a].metadata.labels)"},
		{3, "MachinePool", "annotation", "class", class + "workers.machinePools[small].metadata.annotations)"},
		{3, "MachinePool", "annotation", "taints.heirloom.dev/always", class + "workers.machinePools[small].taints)"},
		{3, "MachinePool", "field", "minReadySeconds", class + "workers.machinePools[small].minReadySeconds)"},
		{5, "MachineSet", "own annotation", "own", "MachineDeployment ns/md (metadata.annotations)"},
		{6, "MachineSet", "label", "below", md + "metadata.labels)"},
		{6, "MachineSet", "label", "mine", inTopology + "metadata.labels)"},
		{6, "MachineSet", "annotation", "below", md + "metadata.annotations)"},
		{6, "MachineSet", "taint", "below:NoSchedule", md + "spec.taints)"},
		{8, "Machine", "label", "below", md + "metadata.labels)"},
		{8, "Machine", "label", "set", "MachineSet ns/ms (spec.template.metadata.labels)"},
		{8, "Machine", "taint", "class:NoSchedule", inClass + "taints)"},
		{8, "Machine", "taint", "annotated:NoSchedule", md + "metadata.annotations[taints.heirloom.dev/always])"},
		{8, "external object", "annotation", "cluster", inTopology + "metadata.annotations)"},
		{11, "Node", "label", "below", md + "metadata.labels)"},
		{11, "Node", "label", "itself", "Machine ns/m (metadata.labels)"},
		{12, "Node", "annotation", "below", md + "metadata.annotations)"},
		{13, "Node", "taint", "class:NoSchedule", inClass + "taints)"},
		{13, "Node", "taint", "annotated:NoSchedule", md + "metadata.annotations[taints.heirloom.dev/always])"},
		{13, "Node", "taint", "itself:NoSchedule", "Machine ns/m (spec.taints)"},
		{14, "scaled", "own annotation", inherit.CapacityLabelsAnnotation, "MachineDeployment ns/x (spec.template.metadata.labels)"},
		{14, "scaled", "own annotation", inherit.CapacityTaintsAnnotation, "MachineDeployment ns/x (spec.template.spec.taints)"},
	} {
		seen[tc.rule] = true
		t.Run(fmt.Sprint(tc.rule, tc.object, tc.entry, tc.name), func(t *testing.T) {
			chain, what := from(holds(t, all...)), strings.Fields(tc.entry)
			entry := inherit.Entry{What: what[len(what)-1], Name: tc.name, Own: len(what) > 1}
			sources := chain.NodeSources(t.Context(), inherit.SourceOfMachine(all[4].(*clusterv1.Machine)))
			if tc.object != "Node" {
				sources = evaluate(t, chain, objects[tc.object], inherit.Policy{}).Sources(t.Context())
			}
			NewWithT(t).Expect(sources.Of(entry).String()).To(Equal(tc.want))
		})
	}
	for _, rule := range append(rules.All(), rules.Capacity()) {
		if rule.Code != "" {
			NewWithT(t).Expect(seen).To(HaveKey(rule.Number), "no source of rule %d is tested", rule.Number)
		}
	}
}
