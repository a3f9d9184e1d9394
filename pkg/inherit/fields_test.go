// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// TestFields: the in-place fields of a template are inherited.
func TestFields(t *testing.T) {
	gates := []clusterv1.MachineReadinessGate{{ConditionType: "example.com/Ready", Polarity: "Negative"}}
	deletion := func(drain, detach, deletion int32) clusterv1.MachineDeletionSpec {
		return clusterv1.MachineDeletionSpec{NodeDrainTimeoutSeconds: &drain, NodeVolumeDetachTimeoutSeconds: &detach, NodeDeletionTimeoutSeconds: &deletion}
	}
	for _, tc := range []struct {
		name string
		spec clusterv1.MachineSpec
		want inherit.Fields
	}{
		{name: "what is not declared is not inherited"},
		{name: "timeouts are inherited", spec: clusterv1.MachineSpec{Deletion: deletion(1, 2, 3)}, want: inherit.Fields{Seconds: inherit.Seconds{inherit.NodeDrainTimeout: new(int32(1)), inherit.NodeVolumeDetachTimeout: new(int32(2)), inherit.NodeDeletionTimeout: new(int32(3))}}},
		{name: "a timeout of zero is declared", spec: clusterv1.MachineSpec{Deletion: clusterv1.MachineDeletionSpec{NodeDrainTimeoutSeconds: new(int32(0))}}, want: inherit.Fields{Seconds: inherit.Seconds{inherit.NodeDrainTimeout: new(int32(0))}}},
		{name: "minReadySeconds is inherited", spec: clusterv1.MachineSpec{MinReadySeconds: new(int32(5))}, want: inherit.Fields{Seconds: inherit.Seconds{inherit.MinReadySeconds: new(int32(5))}}},
		{name: "readiness gates are inherited", spec: clusterv1.MachineSpec{ReadinessGates: gates}, want: inherit.Fields{ReadinessGates: gates}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			md, ms := &clusterv1.MachineDeployment{}, &clusterv1.MachineSet{}
			md.Spec.Template.Spec, ms.Spec.Template.Spec = tc.spec, tc.spec

			set, err := withProblems(inherit.Policy{}.MachineSet(md, &clusterv1.MachineSet{}))
			Expect(err).NotTo(HaveOccurred())
			Expect(set.Top.Fields).To(Equal(inherit.Fields{}), "a MachineSet has them in its template only")
			Expect(set.Template.Fields).To(Equal(tc.want))

			m, err := withProblems(inherit.Policy{}.MachineFrom(inherit.TemplateOfMachineSet(ms), &clusterv1.Machine{}))
			Expect(err).NotTo(HaveOccurred())
			Expect(m.Top.Fields).To(Equal(tc.want))

			has := inherit.OfMachineSet(ms)
			Expect(has.Template.Fields).To(Equal(tc.want))
		})
	}
}

// A name is that of a field in either version of the contract, or of a condition.
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
