// SPDX-License-Identifier: Apache-2.0

package owners_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// A MachineHealthCheck of a topology inherits the metadata of the section of its MachineDeployment.
func TestMachineHealthCheckInherits(t *testing.T) {
	mhc := &clusterv1.MachineHealthCheck{ObjectMeta: named("mhc", ""), Spec: clusterv1.MachineHealthCheckSpec{ClusterName: "c"}}
	ofTopology(mhc)
	decided, err := owners.MachineHealthChecks.Evaluate(t.Context(), from(holds(t, managedCluster(), clusterClass())), mhc, inherit.Policy{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(decided.Desired.Top.Labels).To(Equal(map[string]string{"fromCluster": "1", "fromClass": "1"}))
	NewWithT(t).Expect(decided.Sources(t.Context()).Of(inherit.Entry{What: "label", Name: "fromClass"}).String()).To(HavePrefix("ClusterClass ns/cc"))
}
