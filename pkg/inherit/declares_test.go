// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Who declares a taint of those that a topology's object hands down: the class, the Cluster, both or neither.
func TestSectionDeclares(t *testing.T) {
	const always, initialize = "taints.heirloom.dev/always=", "taints.heirloom.dev/initialize="
	for _, tc := range []struct {
		name            string
		class, topology content
		want            []bool
	}{
		{name: "the class, by annotation", class: content{annotations: always + "drain:NoExecute"}, want: []bool{true, false}},
		{name: "the class, once", class: content{annotations: initialize + "drain:NoExecute"}, want: []bool{true, false}},
		{name: "the class, by type", class: content{taints: "drain:NoExecute"}, want: []bool{true, false}},
		{name: "the Cluster", topology: content{annotations: always + "drain:NoExecute"}, want: []bool{false, true}},
		{name: "the Cluster, by type", topology: content{taints: "drain:NoExecute"}, want: []bool{false, true}},
		{name: "the Cluster's annotation replaces the class's", class: content{annotations: always + "drain:NoExecute"}, topology: content{annotations: always + "other:NoExecute"}, want: []bool{false, false}},
		{name: "the Cluster's list replaces the class's", class: content{taints: "drain:NoExecute"}, topology: content{taints: "other:NoExecute"}, want: []bool{false, false}},
		{name: "both, in two ways", class: content{taints: "drain:NoExecute"}, topology: content{annotations: always + "drain:NoExecute"}, want: []bool{true, true}},
		{name: "neither", class: content{annotations: always + "drain:NoSchedule"}, topology: content{taints: "other:NoExecute"}, want: []bool{false, false}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := inherit.Section{Class: declaredBy(tc.class), Topology: declaredBy(tc.topology)}
			drain, all := inherit.TaintEntry(taint.ID{Key: "drain", Effect: "NoExecute"}), s.Declarations(&clusterv1.Cluster{}, &clusterv1.ClusterClass{})
			NewWithT(t).Expect(all).To(HaveExactElements(HaveField("Kind", "Cluster"), HaveField("Kind", "ClusterClass")))
			NewWithT(t).Expect([]bool{all[1].Declares(drain), all[0].Declares(drain)}).To(Equal(tc.want))
		})
	}
}

// declaredBy is a section that declares this; a list of taints that would be empty is not declared.
func declaredBy(c content) inherit.Part {
	part := c.section()
	if len(part.Taints) == 0 {
		part.Taints = nil
	}
	return part
}
