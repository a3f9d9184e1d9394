// SPDX-License-Identifier: Apache-2.0

package taint_test

import (
	"testing"

	. "github.com/onsi/gomega"
	kjson "sigs.k8s.io/json"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

func TestOnUpdateOnlyWhatIsNewIsJudged(t *testing.T) {
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

func TestCarrierIsDecodedFromAnyObject(t *testing.T) {
	for _, tc := range []struct {
		name, document string
		problem        string
	}{
		{name: "an empty object carries nothing", document: `{}`},
		{name: "null is nothing", document: `{"metadata":null,"spec":null}`},
		{name: "null inside is nothing", document: `{"spec":{"taints":null,"template":null,"topology":{"workers":{"machineDeployments":[null]}}}}`},
		{name: "unknown fields are passed over", document: `{"spec":{"replicas":3,"template":{"spec":{"version":"v1","taints":[{"key":"a","effect":"NoSchedule","propagation":"Always","new":true}]}}},"status":{}}`},
		{name: "names in another case are other names", document: `{"spec":{"Taints":[{"key":"a","effect":"Never","propagation":"Always"}]}}`},
		{name: "a list of texts is no list of taints", document: `{"spec":{"taints":["a:NoSchedule"]}}`, problem: "cannot unmarshal string"},
		{name: "broken JSON is refused", document: `{"spec":`, problem: "unexpected end"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			c := &taint.Carrier{}
			err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(tc.document), c)
			if tc.problem != "" {
				Expect(err).To(MatchError(ContainSubstring(tc.problem)))
				return
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(taint.ValidateCarrier(c, nil, false)).To(BeEmpty())
		})
	}
}
