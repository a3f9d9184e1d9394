// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// TestFields: the in-place fields of a template are inherited, wherever the version of the API has them.
func TestFields(t *testing.T) {
	gates := []clusterv1.MachineReadinessGate{{ConditionType: "example.com/Ready", Polarity: "Negative"}}
	deletion := func(drain, detach, deletion int32) clusterv1.MachineDeletionSpec {
		return clusterv1.MachineDeletionSpec{NodeDrainTimeoutSeconds: &drain, NodeVolumeDetachTimeoutSeconds: &detach, NodeDeletionTimeoutSeconds: &deletion}
	}
	for _, tc := range []struct {
		name   string
		spec   capi.MachineFields
		inside capi.WorkerFields
		around capi.WorkerFields
		want   inherit.Fields
	}{
		{name: "what is not declared is not inherited"},
		{name: "v1beta2 has timeouts in seconds", spec: capi.MachineFields{Deletion: deletion(1, 2, 3)}, want: inherit.Fields{Seconds: inherit.Seconds{inherit.NodeDrainTimeout: new(int32(1)), inherit.NodeVolumeDetachTimeout: new(int32(2)), inherit.NodeDeletionTimeout: new(int32(3))}}},
		{name: "v1beta1 has durations", spec: capi.MachineFields{NodeDrainTimeout: lasts("1s"), NodeVolumeDetachTimeout: lasts("2m"), NodeDeletionTimeout: lasts("1h")}, want: inherit.Fields{Seconds: inherit.Seconds{inherit.NodeDrainTimeout: new(int32(1)), inherit.NodeVolumeDetachTimeout: new(int32(120)), inherit.NodeDeletionTimeout: new(int32(3600))}}},
		{name: "parts of a second do not count, as in Cluster API", spec: capi.MachineFields{NodeDrainTimeout: lasts("1900ms")}, want: inherit.Fields{Seconds: inherit.Seconds{inherit.NodeDrainTimeout: new(int32(1))}}},
		{name: "a timeout of zero is declared", spec: capi.MachineFields{NodeDrainTimeout: lasts("0s")}, want: inherit.Fields{Seconds: inherit.Seconds{inherit.NodeDrainTimeout: new(int32(0))}}},
		{name: "v1beta2 has minReadySeconds in the template", inside: capi.WorkerFields{MinReadySeconds: new(int32(5))}, want: inherit.Fields{Seconds: inherit.Seconds{inherit.MinReadySeconds: new(int32(5))}}},
		{name: "v1beta1 has it around the template", around: capi.WorkerFields{MinReadySeconds: new(int32(5))}, want: inherit.Fields{Seconds: inherit.Seconds{inherit.MinReadySeconds: new(int32(5))}}},
		{name: "readiness gates are inherited", spec: capi.MachineFields{ReadinessGates: gates}, want: inherit.Fields{ReadinessGates: gates}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			md := &clusterv1.MachineDeployment{Spec: clusterv1.MachineDeploymentSpec{WorkerFields: tc.around}}
			md.Spec.Template.Spec.MachineFields, md.Spec.Template.Spec.WorkerFields = tc.spec, tc.inside
			ms := &clusterv1.MachineSet{Spec: clusterv1.MachineSetSpec{WorkerFields: tc.around}}
			ms.Spec.Template.Spec.MachineFields, ms.Spec.Template.Spec.WorkerFields = tc.spec, tc.inside

			set, err := inherit.Policy{}.MachineSet(md, &clusterv1.MachineSet{})
			Expect(err).NotTo(HaveOccurred())
			Expect(set.Top.Fields).To(Equal(inherit.Fields{}), "a MachineSet has them in its template only")
			Expect(set.Template.Fields).To(Equal(tc.want))

			m, err := inherit.Policy{}.MachineFrom(inherit.TemplateOfMachineSet(ms), &clusterv1.Machine{})
			Expect(err).NotTo(HaveOccurred())
			Expect(m.Top.Fields).To(Equal(tc.want))

			has := inherit.OfMachineSet(ms)
			Expect(has.Template.Fields).To(Equal(tc.want))
		})
	}
}

func lasts(s string) *metav1.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return &metav1.Duration{Duration: d}
}
