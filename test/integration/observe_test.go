// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// With mode=observe, the chart grants no right to write what inherits, and the program does not try to: it reports, even in a Cluster whose
// label asks for writes.
func TestObservingNeedsNoRightToWrite(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{
		WithoutProgram: true, Args: []string{"--mode=observe", "--management-cluster=" + fleetName + "/own"},
		Values: map[string]any{"mode": "observe", "managementCluster": fleetName + "/own"},
	})
	s.ensureNamespace(fleetName)
	own := stage.Cluster(fleetName, "own")
	own.Labels = map[string]string{inherit.ModeLabel: string(inherit.Enforce)}
	s.create(own)
	md := stage.MachineDeployment(own, "own", declared())
	s.create(md)
	set := stage.MachineSet(md, "own")
	s.create(set)
	machine := stage.Machine(set, "own")
	s.create(machine, stage.Node("own"))
	s.Expect(s.StartHeirloom(s.ctx)).To(Succeed())
	s.expectEvent("WouldWrite", "MachineSet", "own", HavePrefix("Observing only; would add "))
	s.expectEvent("WouldWrite", "Machine", "own", HaveSuffix(" on Node own"))

	const ofCluster = `{cluster_name="own",cluster_namespace="` + fleetName + `",`
	s.Eventually(s.samples).WithTimeout(patience).Should(And(
		HaveKeyWithValue("heirloom_pending_writes"+ofCluster+`kind="MachineSet"}`, 1.0), HaveKeyWithValue("heirloom_pending_writes"+ofCluster+`kind="Node"}`, 1.0),
		HaveKeyWithValue("heirloom_cluster_mode"+ofCluster+`mode="observe"}`, 1.0),
	))

	writing := slices.DeleteFunc(s.granted(), func(r right) bool { return slices.Contains([]string{"get", "list", "watch"}, r.verb) })
	for _, r := range writing {
		s.Expect(r.resource).To(BeElementOf("events", "leases", "tokenreviews", "subjectaccessreviews"), r.String())
	}
	_, refused := requests(s, s.audit)
	s.Expect(refused).To(BeEmpty())
	written := &clusterv1.Machine{}
	s.Expect(s.Client.Get(s.ctx, client.ObjectKeyFromObject(machine), written)).To(Succeed())
	s.Expect(ours(written)).To(BeEmpty())
}
