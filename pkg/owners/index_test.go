// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// What is in other namespaces costs no look-up anything: a tenant's Machines do not slow down the Nodes of another.
func TestLookUpsWithinANamespace(t *testing.T) {
	Expect := NewWithT(t).Expect
	machine := func(namespace string) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m"}}
		m.Spec.ProviderID = "acme://1"
		return m
	}
	pool := func(namespace string) *clusterv1.MachinePool {
		mp := &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mp"}}
		mp.Spec.ProviderIDList = []string{"acme://0", "acme://1"}
		return mp
	}
	c := &Chain{Reader: Cached{Reader: holds(t, machine("ns"), machine("other"), pool("ns"), pool("other"))}}
	for namespace, number := range map[string]int{"ns": 1, "other": 1, "nowhere": 0, metav1.NamespaceAll: 2} {
		Expect(c.machines(t.Context(), namespace, providerIDField, "acme://1")).To(HaveLen(number), namespace)
		Expect(c.pools(t.Context(), namespace, "acme://1")).To(HaveLen(number), namespace)
		Expect(c.machines(t.Context(), namespace, providerIDField, "acme://2")).To(BeEmpty())
	}
}

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
