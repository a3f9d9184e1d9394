// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// A control plane of either contract is read, no matter who provides it.
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
