// SPDX-License-Identifier: Apache-2.0

package owners_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// An InfraMachine that is not there, as in a restore, takes away no label that it gave the Node before, and gives none.
func TestFactsOfAnObjectThatIsNotThere(t *testing.T) {
	Expect := NewWithT(t).Expect
	fact, err := inherit.ParseFact("AcmeMachine.infrastructure.cluster.x-k8s.io:spec.size=example.com/size")
	Expect(err).NotTo(HaveOccurred())
	m := machine("m", "", isNode, func(m *clusterv1.Machine) {
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: inherit.InfrastructureGroup, Kind: "AcmeMachine", Name: "m"}
	})
	chain, had, never := from(holds(t, ofCluster("c"), m)).Within(itself), node("n"), node("n")
	had.Labels = map[string]string{"example.com/size": "xl"}
	had.Annotations = map[string]string{inherit.LabelsFromMachineAnnotation: "example.com/size"}
	decided, err := chain.EvaluateNode(t.Context(), had, inherit.Policy{Facts: []inherit.Fact{fact}})
	Expect(err).NotTo(HaveOccurred())
	Expect(decided.Source.Labels).To(HaveKeyWithValue("example.com/size", "xl"))
	decided, err = chain.EvaluateNode(t.Context(), never, inherit.Policy{Facts: []inherit.Fact{fact}})
	Expect(err).NotTo(HaveOccurred())
	Expect(decided.Source.Labels).NotTo(HaveKey("example.com/size"))
}
