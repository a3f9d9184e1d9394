// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An object that has lost its owner keeps what is in its template, also when something is told to cluster-autoscaler.
func TestAnOrphanKeepsWhatIsInItsTemplate(t *testing.T) {
	Expect := NewWithT(t).Expect
	for fields, has := range map[string]content{
		"'f:metadata': {'f:labels': {'f:a': {}}}": {labels: "a=1"},
		`'f:spec': {'f:taints': {'k:{"effect":"NoSchedule","key":"gpu"}': {'.': {}, 'f:effect': {}, 'f:key': {}, 'f:propagation': {}}}}`: {taints: "gpu:NoSchedule"},
	} {
		plan := planOf(t, has.template(), tells("a=1"), entries(ours("{'f:spec': {'f:template': {"+fields+"}}}")))
		Expect(plan.GivesUp()).To(BeFalse())
		config, err := plan.ApplyConfiguration(version, "MachineSet", &metav1.ObjectMeta{})
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Object).To(HaveKeyWithValue("spec", HaveKey("template")))
	}
}

// Somebody may have set a field of a taint of ours by an update. The taint goes with it, and so does what they own of it.
func TestATaintGoesWithWhatOthersHaveSetInIt(t *testing.T) {
	Expect := NewWithT(t).Expect
	value := managed("kubectl", metav1.ManagedFieldsOperationUpdate, `{'f:metadata': {'f:labels': {'f:a': {}}}, 'f:spec': {'f:taints': {'k:{"effect":"NoSchedule","key":"gpu"}': {'f:value': {}}}}}`)
	fields := entries(ours(gpu), value)
	raw := document(t, "{metadata: {labels: {a: '1'}}, spec: {taints: [{key: gpu, value: x, effect: NoSchedule, propagation: Always}]}}", fields)
	plan := newPlan(t, content{labels: "a=1", taints: "gpu=x:NoSchedule"}.top(), content{}.top(), fields)
	Expect(ownersOf(t, patched(t, plan, raw))).To(Equal(map[string]string{"kubectl": ".metadata.labels.a"}))
}
