// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Each kind inherits by its own rule, Machines and external objects by their owner's. The rule of an entry also depends on where it is:
// a MachineSet's own annotations have another than the rest.
func TestRuleOf(t *testing.T) {
	own, template := inherit.Entry{What: "annotation", Own: true}, inherit.Entry{What: "annotation"}
	for _, tc := range []struct {
		owner         string
		object        inherit.Owner
		own, template int
	}{
		{"Cluster", &inherit.ControlPlane{}, 1, 1},
		{"ClusterClass", &clusterv1.MachineDeployment{}, 2, 2},
		{"Cluster", &clusterv1.MachinePool{}, 3, 3},
		{"MachineDeployment", &clusterv1.MachineSet{}, 5, 6},
		{"MachineSet", &clusterv1.Machine{}, 8, 8},
		{"MachinePool", &clusterv1.Machine{}, 9, 9},
		{"KubeadmControlPlane", &clusterv1.Machine{}, 4, 4},
		{"MachineSet", &metav1.PartialObjectMetadata{}, 8, 8},
		{"KubeadmControlPlane", &metav1.PartialObjectMetadata{}, 4, 4},
		{"Machine", &corev1.Node{}, 12, 12},
	} {
		NewWithT(t).Expect(ruleOf(tc.owner, inherit.Ref{Object: tc.object}, own)).To(Equal(tc.own), "%s of a %T", tc.owner, tc.object)
		NewWithT(t).Expect(ruleOf(tc.owner, inherit.Ref{Object: tc.object}, template)).To(Equal(tc.template), "%s of a %T", tc.owner, tc.object)
	}
	set, node := inherit.Ref{Object: &clusterv1.MachineSet{}}, inherit.Ref{Object: &corev1.Node{}}
	NewWithT(t).Expect(ruleOf("MachineDeployment", set, inherit.Entry{What: "label", Own: true})).To(Equal(6))
	for what, want := range map[string]int{"label": 11, "annotation": 12, "taint": 13} {
		NewWithT(t).Expect(ruleOf("MachinePool", node, inherit.Entry{What: what})).To(Equal(want), what)
	}
}
