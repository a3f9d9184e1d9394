// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// A Machine is known by its addresses until it is a Node. Then it can be no other one.
func TestWhatAMachineIsIndexedBy(t *testing.T) {
	Expect := NewWithT(t).Expect
	m := &clusterv1.Machine{}
	m.Status.Addresses = []clusterv1.MachineAddress{{Type: "InternalIP", Address: "10.0.0.1"}, {Type: "ExternalIP", Address: "192.0.2.1"}, {Type: "Hostname", Address: "h"}}
	Expect(IndexValues(m, nodeNameField)).To(ConsistOf("10.0.0.1", "h"))
	m.Status.NodeRef.Name = "node"
	Expect(IndexValues(m, nodeNameField)).To(ConsistOf("node"))
	Expect(machineNodeNames(m)).To(ConsistOf("10.0.0.1", "h", "node"), "it may have been the others, which are looked for among Nodes")
}
