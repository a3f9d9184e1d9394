// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// The webhook may have answered a request in v1beta1. The loop, which sees the object in v1beta2, tells what of that is ours.
func TestWhatIsOursInAnOlderVersion(t *testing.T) {
	Expect := NewWithT(t).Expect
	entry := ours("{'f:metadata': {'f:labels': {'f:a': {}}}, 'f:spec': {'f:nodeDrainTimeout': {}}}")
	entry.APIVersion = "cluster.x-k8s.io/v1beta1"
	has, wants := content{labels: "a=1"}.top(), content{labels: "a=1,b=1"}.top()
	has.Top.Fields.Seconds[inherit.NodeDrainTimeout] = ptr.To(int32(60))
	wants.Top.Fields.Seconds[inherit.NodeDrainTimeout], wants.Top.Fields.Seconds[inherit.NodeDeletionTimeout] = ptr.To(int32(60)), ptr.To(int32(90))

	plan := newPlan(t, has, wants, entries(entry))
	Expect(plan.GivesUp()).To(BeFalse())
	Expect(plan.Changes()).To(ConsistOf(HaveField("Name", "b"), HaveField("Name", "nodeDeletionTimeoutSeconds")))
	config, err := plan.ApplyConfiguration(version, "Machine", &metav1.ObjectMeta{})
	Expect(err).NotTo(HaveOccurred())
	Expect(asJSON(t, config.Object["spec"])).To(MatchJSON(`{"deletion": {"nodeDrainTimeoutSeconds": 60, "nodeDeletionTimeoutSeconds": 90}}`))

	wants.Top.Fields = inherit.Fields{}
	Expect(newPlan(t, has, wants, entries(entry)).Changes()).To(ContainElement(managedfields.Change{Place: "spec.deletion.nodeDrainTimeoutSeconds", Name: "nodeDrainTimeoutSeconds"}))
	entry.APIVersion = version
	has.Layout = inherit.MachineLayout
	Expect(newPlan(t, has, wants, entries(entry)).Changes()).To(ConsistOf(HaveField("Name", "b")), "an older version leaves the fields to the loop")
}

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
