// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// FieldOf accepts the name of a field in either version of the contract, and the type of a condition.
func TestFieldOf(t *testing.T) {
	for name, want := range map[string]inherit.Field{
		"nodeDrainTimeout": inherit.NodeDrainTimeout, "nodeDrainTimeoutSeconds": inherit.NodeDrainTimeout,
		"nodeVolumeDetachTimeout": inherit.NodeVolumeDetachTimeout, "nodeVolumeDetachTimeoutSeconds": inherit.NodeVolumeDetachTimeout,
		"nodeDeletionTimeout": inherit.NodeDeletionTimeout, "nodeDeletionTimeoutSeconds": inherit.NodeDeletionTimeout,
		"minReadySeconds": inherit.MinReadySeconds, "readinessGates": inherit.ReadinessGates,
		"example.com/Ready": inherit.ReadinessGates, "": inherit.ReadinessGates,
	} {
		NewWithT(t).Expect(inherit.FieldOf(name)).To(Equal(want), name)
	}
}

// describePaths lists the paths of a layout, and its other properties.
func describePaths(p inherit.Paths) []string {
	var lines []string
	for _, path := range append([][]string{p.Metadata, p.Taints, p.Fields[inherit.ReadinessGates]}, p.Fields[:inherit.ReadinessGates]...) {
		if path != nil {
			lines = append(lines, strings.Join(path, "."))
		}
	}
	if p.Durations {
		lines = append(lines, "(durations)")
	}
	return lines
}

// lines splits the short form of a description; "<prefix>: a b c" stands for prefix.a, prefix.b and prefix.c.
func lines(s string) []string {
	prefix, rest, ok := strings.Cut(s, ": ")
	if !ok {
		return strings.Fields(s)
	}
	all := strings.Fields(rest)
	for i := range all {
		all[i] = prefix + "." + all[i]
	}
	return all
}

const (
	secondsBelow   = "deletion.nodeDrainTimeoutSeconds deletion.nodeVolumeDetachTimeoutSeconds deletion.nodeDeletionTimeoutSeconds"
	durationsBelow = "nodeDrainTimeout nodeVolumeDetachTimeout nodeDeletionTimeout"
)

func TestControlPlaneLayout(t *testing.T) {
	const template = "spec.machineTemplate: "
	for _, tc := range []struct {
		name string
		// has lists the fields of the kind's schema below spec.machineTemplate.
		has  string
		want []string
	}{
		{name: "the v1beta2 contract has a Machine's fields in spec", has: "metadata spec.taints spec.readinessGates spec.deletion.nodeDrainTimeoutSeconds spec.deletion.nodeVolumeDetachTimeoutSeconds spec.deletion.nodeDeletionTimeoutSeconds", want: lines(template + "metadata spec.taints spec.readinessGates spec.deletion.nodeDrainTimeoutSeconds spec.deletion.nodeVolumeDetachTimeoutSeconds spec.deletion.nodeDeletionTimeoutSeconds")},
		{name: "the v1beta1 contract has them beside the metadata", has: "metadata taints readinessGates " + durationsBelow, want: slices.Concat(lines(template+"metadata taints readinessGates "+durationsBelow), lines("(durations)"))},
		{name: "of a kind with both, the newer contract counts", has: "metadata taints spec.taints readinessGates spec.readinessGates nodeDrainTimeout spec.deletion.nodeDrainTimeoutSeconds", want: lines(template + "metadata spec.taints spec.readinessGates spec.deletion.nodeDrainTimeoutSeconds")},
		{name: "timeouts may be newer than lists", has: "metadata taints readinessGates spec.deletion.nodeDrainTimeoutSeconds", want: lines(template + "metadata taints readinessGates spec.deletion.nodeDrainTimeoutSeconds")},
		{name: "timeouts of both contracts are not mixed, since their units differ", has: "nodeDrainTimeout nodeDeletionTimeout spec.deletion.nodeVolumeDetachTimeoutSeconds", want: lines(template + "spec.deletion.nodeVolumeDetachTimeoutSeconds")},
		{name: "a control plane has no minReadySeconds, whatever its schema says", has: "metadata minReadySeconds spec.minReadySeconds", want: slices.Concat(lines(template+"metadata"), lines("(durations)"))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			has := map[string]bool{}
			for _, path := range lines(template + tc.has) {
				has[path] = true
			}
			layout := inherit.ControlPlaneLayout("v1alpha3", func(path ...string) bool { return has[strings.Join(path, ".")] })
			Expect(layout.Version).To(Equal("v1alpha3"), "the version is the provider's own")
			Expect(describePaths(layout.Top)).To(Equal(lines("metadata")))
			Expect(describePaths(layout.Template)).To(Equal(tc.want))
		})
	}
}

// A control plane of either contract is read, for every provider.
func TestControlPlaneOfEachContract(t *testing.T) {
	const lists = "taints: [{key: gpu, effect: NoSchedule, propagation: Always}], readinessGates: [{conditionType: Warm}]"
	for contract, template := range map[string]string{
		"v1beta1": "{metadata: {labels: {a: '1'}}, nodeDrainTimeout: 90s, nodeVolumeDetachTimeout: 1900ms, nodeDeletionTimeout: 0s, " + lists + "}",
		"v1beta2": "{metadata: {labels: {a: '1'}}, spec: {deletion: {nodeDrainTimeoutSeconds: 90, nodeVolumeDetachTimeoutSeconds: 1, nodeDeletionTimeoutSeconds: 0}, " + lists + "}}",
	} {
		t.Run(contract, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			object := map[string]any{}
			Expect(yaml.Unmarshal([]byte("{kind: AcmeControlPlane, metadata: {name: cp}, spec: {machineTemplate: "+template+", version: v1.36.3}}"), &object)).To(Succeed())
			cp := &inherit.ControlPlane{}
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object, cp)).To(Succeed())
			copied, ok := cp.DeepCopyObject().(*inherit.ControlPlane)
			Expect(ok).To(BeTrue())
			Expect(copied).To(Equal(cp))
			read := inherit.TemplateOfControlPlane(cp)
			Expect(read.Labels).To(Equal(labels("a=1")))
			Expect(read.Taints).To(Equal(declared("gpu:NoSchedule")))
			Expect(read.Fields.ReadinessGates).To(HaveExactElements(HaveField("ConditionType", "Warm")))
			Expect(read.Fields.Seconds).To(Equal(inherit.Seconds{new(int32(90)), new(int32(1)), new(int32(0))}), "parts of a second do not count, as in Cluster API")

			read.Labels["a"], read.Taints[0].Key, read.Fields.ReadinessGates[0].ConditionType = "", "", ""
			Expect(inherit.TemplateOfControlPlane(copied).Labels).To(Equal(labels("a=1")), "a copy shares nothing")
			Expect(inherit.TemplateOfControlPlane(copied).Taints).To(Equal(declared("gpu:NoSchedule")))
			Expect(inherit.TemplateOfControlPlane(copied).Fields.ReadinessGates).To(HaveExactElements(HaveField("ConditionType", "Warm")))
		})
	}
}
