// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

func TestMachineDeploymentsInheritLabelsOfTheirCluster(t *testing.T) {
	Expect := NewWithT(t).Expect
	c, md := &capi.Cluster{ObjectMeta: named("c", "")}, machineDeployment("md")
	c.Labels = map[string]string{"x.example/zone": "a", "sub.x.example/b": "", "other": ""}
	chain := &Chain{Reader: holds(t, c, md, machineSet("MachineDeployment/md"), machine("m", "MachineSet/ms"))}

	decided, err := MachineDeployments().Evaluate(t.Context(), chain, md, inherit.Policy{})

	Expect(err).NotTo(HaveOccurred())
	want := map[string]string{"x.example/zone": "a", "sub.x.example/b": ""}
	Expect(decided.Outcome).To(Equal(inherit.Inherits))
	Expect(decided.Desired.Top.Labels).To(Equal(want))
	Expect(decided.Desired.Template.Labels).To(Equal(want))
	source := decided.Sources(t.Context()).Of(inherit.Entry{What: "label", Name: "x.example/zone"})
	Expect(source.String()).To(Equal("Cluster ns/c (metadata.labels)"))
	m := chain.effective(t.Context(), machine("m", "MachineSet/ms"), c, inherit.Policy{})
	Expect(m.Labels).To(HaveKeyWithValue("x.example/zone", "a"), "the Node does not wait")
}
