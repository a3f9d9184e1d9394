// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// Each shape in which a provider and a version of its API declare labels and taints for kubelets is read.
func TestShapes(t *testing.T) {
	const join, args = "spec.template.spec.joinConfiguration.nodeRegistration", ".kubeletExtraArgs"
	for name, c := range map[string]struct {
		object string
		want   []string
	}{
		"kubeadm, v1beta2": {`{spec: {template: {spec: {joinConfiguration: {nodeRegistration: {taints: [{key: a, value: b, effect: NoSchedule}],
			kubeletExtraArgs: [{name: v, value: "4"}, {name: node-labels, value: "c=d, e="}]}}}}}}`,
			[]string{"taint a:NoSchedule b " + join + ".taints", "label c d " + join + args + "[node-labels]", "label e  " + join + args + "[node-labels]"}},
		"kubeadm, v1beta1": {`{spec: {template: {spec: {joinConfiguration: {nodeRegistration: {
			kubeletExtraArgs: {register-with-taints: "a=b:NoSchedule,c:NoExecute", node-labels: ""}}}}}}}`,
			[]string{"taint a:NoSchedule b " + join + args + "[register-with-taints]", "taint c:NoExecute  " + join + args + "[register-with-taints]"}},
		"a kubeadm control plane": {`{spec: {kubeadmConfigSpec: {initConfiguration: {nodeRegistration: {taints: []}}, joinConfiguration: {nodeRegistration: {taints: [{key: a, effect: NoSchedule}]}}}}}`,
			[]string{"taint a:NoSchedule  spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.taints"}},
		"RKE2": {`{spec: {agentConfig: {nodeLabels: [a=b], nodeTaints: ["c=d:NoSchedule"]}}}`,
			[]string{"label a b spec.agentConfig.nodeLabels", "taint c:NoSchedule d spec.agentConfig.nodeTaints"}},
		"EKS": {`{spec: {template: {spec: {kubeletExtraArgs: {node-labels: a=b}}}}}`, []string{"label a b spec.template.spec.kubeletExtraArgs[node-labels]"}},
		"Talos": {`{spec: {template: {spec: {data: "version: v1alpha1\nmachine: {nodeLabels: {a: b}}\n---\nkind: X", strategicPatches: ["machine: {nodeTaints: {c: 'd:NoSchedule', e: NoExecute}}"]}}}}`,
			[]string{"label a b spec.template.spec.data.nodeLabels", "taint c:NoSchedule d spec.template.spec.strategicPatches.nodeTaints", "taint e:NoExecute  spec.template.spec.strategicPatches.nodeTaints"}},
		"a Talos control plane": {`{spec: {controlPlaneConfig: {controlplane: {configPatches: [{op: add, path: /machine/nodeLabels, value: {a: b}}, {op: add, path: /machine/nodeTaints/x.y~1c, value: "d:NoSchedule"},
			{op: remove, path: /machine/nodeLabels/z}, {op: add, path: /cluster, value: {}}]}}}}`,
			[]string{"label a b spec.controlPlaneConfig.controlplane.configPatches.nodeLabels", "taint x.y/c:NoSchedule d spec.controlPlaneConfig.controlplane.configPatches.nodeTaints"}},
		"other fields": {`{spec: {template: {spec: [1]}, agentConfig: "x", joinConfiguration: {nodeRegistration: {taints: {}, kubeletExtraArgs: [1, {name: 2}]}}, data: "{{ not: yaml"}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			object, found := map[string]any{}, []string(nil)
			NewWithT(t).Expect(yaml.Unmarshal([]byte(c.object), &object)).To(Succeed())
			for _, d := range Of(object) {
				found = append(found, d.What+" "+d.Name+" "+d.Value+" "+d.Field)
			}
			NewWithT(t).Expect(found).To(Equal(c.want))
		})
	}
}
