// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"cmp"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// An InfraMachine whose Machine becomes its owner, in place of the MachineSet or control plane for which it was created, inherits from
// the same template as before. Any other change of owners reaches the webhook.
func TestNewOwnersAreAskedAboutIfTheTemplateMayBeAnother(t *testing.T) {
	asked := conditionsOf(t, "siblings.heirloom.dev")
	for _, tc := range []struct {
		name      string
		from, to  []string
		relabeled bool
		want      bool
	}{
		{"the Machine of a MachineSet", []string{"MachineSet"}, []string{"Machine"}, false, false},
		{"the Machine beside its MachineSet", []string{"MachineSet"}, []string{"MachineSet", "Machine"}, false, false},
		{"the Machine, and a label less", []string{"MachineSet"}, []string{"Machine"}, true, true},
		{"the Machine of a control plane", []string{"KubeadmControlPlane"}, []string{"Machine"}, false, false},
		{"the Machine of a MachinePool", []string{"FakeMachinePool"}, []string{"Machine"}, false, true},
		{"another MachineSet", []string{"MachineSet"}, []string{"MachineSet", "MachineSet"}, false, true},
		{"a first owner", nil, []string{"Machine"}, false, true},
		{"another Machine", []string{"Machine"}, []string{"Machine", "Machine"}, false, true},
		{"the same owners", []string{"Machine"}, []string{"Machine"}, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := newMachine(t, map[string]string{"cluster.x-k8s.io/cluster-name": "c", "own": "1"}, nil)
			before.SetKind("FakeMachine")
			after := before.DeepCopy()
			before.SetOwnerReferences(references(tc.from))
			after.SetOwnerReferences(references(tc.to))
			if tc.relabeled {
				after.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "c"})
			}
			NewWithT(t).Expect(asked.match(t, before, after)).To(Equal(tc.want))
		})
	}
}

func references(kinds []string) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	groups := map[string]string{"KubeadmControlPlane": inherit.ControlPlaneGroup, "FakeMachinePool": inherit.InfrastructureGroup}
	for _, kind := range kinds {
		group := cmp.Or(groups[kind], clusterv1.GroupVersion.Group)
		refs = append(refs, metav1.OwnerReference{APIVersion: group + "/v1beta2", Kind: kind, Name: "o", UID: "o"})
	}
	return refs
}
