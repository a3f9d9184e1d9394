// SPDX-License-Identifier: Apache-2.0

package taint_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

func TestUpdatesAreJudgedByTheirChanges(t *testing.T) {
	const bad, worse = "{key: node.kubernetes.io/bad, effect: NoSchedule, propagation: Always}", "{key: node.kubernetes.io/worse, effect: NoSchedule, propagation: Always}"
	for _, tc := range []struct {
		name, old, new string
		want           []string
	}{
		{
			name: "a taint that was there is not judged, the one beside it is",
			old:  "spec: {template: {spec: {taints: [" + bad + "]}}}",
			new:  "spec: {template: {spec: {taints: [" + bad + ", " + worse + "]}}}",
			want: []string{"Invalid spec.template.spec.taints[1].key"},
		},
		{
			name: "a taint that moves from an annotation to its type is judged",
			old:  "metadata: {annotations: {taints.heirloom.dev/always: 'node.kubernetes.io/bad:NoSchedule'}}",
			new:  "spec: {taints: [" + bad + "]}",
			want: []string{"Invalid spec.taints[0].key"},
		},
		{
			name: "a taint is judged where it is new, even if the object had it elsewhere",
			old:  "spec: {machineTemplate: {taints: [" + bad + "]}}",
			new:  "spec: {machineTemplate: {spec: {taints: [" + bad + "]}}}",
			want: []string{"Invalid spec.machineTemplate.spec.taints[0].key"},
		},
		{
			name: "a section that moves is not judged again",
			old:  "spec: {topology: {workers: {machineDeployments: [{name: a, class: one, taints: [" + bad + "]}]}}}",
			new:  "spec: {topology: {workers: {machineDeployments: [{name: b, class: one}, {name: a, class: one, taints: [" + bad + "]}]}}}",
		},
		{
			name: "a section that gets another class is not judged again",
			old:  "spec: {topology: {workers: {machineDeployments: [{name: a, class: one, taints: [" + bad + "]}]}}}",
			new:  "spec: {topology: {workers: {machineDeployments: [{name: a, class: two, taints: [" + bad + "]}]}}}",
		},
		{
			name: "a new section is judged",
			old:  "spec: {topology: {workers: {machineDeployments: [{name: a, class: one, taints: [" + bad + "]}]}}}",
			new:  "spec: {topology: {workers: {machineDeployments: [{name: a, class: one, taints: [" + bad + "]}, {name: b, class: one, taints: [" + bad + "]}]}}}",
			want: []string{"Invalid spec.topology.workers.machineDeployments[1].taints[0].key"},
		},
		{
			name: "a class of a ClusterClass that moves is not judged again",
			old:  "spec: {workers: {machinePools: [{class: one, taints: [" + bad + "]}]}}",
			new:  "spec: {workers: {machinePools: [{class: two, taints: [" + worse + "]}, {class: one, taints: [" + bad + "]}]}}",
			want: []string{"Invalid spec.workers.machinePools[0].taints[0].key"},
		},
		{
			name: "what is removed is not judged",
			old:  "spec: {topology: {controlPlane: {taints: [" + bad + "]}, workers: {machinePools: [{name: a, taints: [" + bad + "]}]}}}",
			new:  "spec: {topology: {controlPlane: {}}}",
		},
		{
			name: "every place reports its own",
			new:  "{metadata: {annotations: {taints.heirloom.dev/always: typo}}, spec: {taints: [" + bad + "], template: {spec: {taints: [" + worse + "]}}}}",
			want: []string{"Invalid metadata.annotations[taints.heirloom.dev/always]", "Invalid spec.taints[0].key", "Invalid spec.template.spec.taints[0].key"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			errs := taint.ValidateCarrier(carrier(t, tc.new, ""), carrier(t, tc.old, ""), false)
			NewWithT(t).Expect(brief(errs)).To(Equal(tc.want))
		})
	}
}
