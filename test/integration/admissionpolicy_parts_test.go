// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// racked is one of very many Machines.
func racked(number int) *clusterv1.Machine {
	m := addressed(fmt.Sprintf("m-%04d", number), fmt.Sprintf("10.0.%d.%d", number>>8, number&255))
	m.Status.Addresses = append(m.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: m.Name})
	m.Annotations = map[string]string{"node.cluster.x-k8s.io/rack": fmt.Sprint(number % 50)}
	m.Spec.ProviderID = "cloud:///" + strings.Repeat("zone/", 5) + m.Name
	return m
}

// The API server takes the parameters of 5000 Machines that wait for their Nodes, in several parts, and finds the right one
// among them. A Node that registers while they are divided anew gets what it inherits, each time.
func testAdmissionPolicyWithFiveThousandMachines(t *testing.T, all *policyScene) {
	s := all.of(t, declaringAll("steady"))
	s.ensure()
	s.Expect(s.parts(1)).To(HaveLen(1))
	missed, stop := s.stream("steady")
	for number := range 5000 {
		s.machines = append(s.machines, racked(number))
	}
	s.ensure()
	before := s.parts(16)
	s.Expect(before).To(HaveLen(16))
	s.Expect(s.parts(1)).To(HaveLen(1), "an API server may still look at it")

	s.racks(4000)
	s.machines[4242].Annotations["node.cluster.x-k8s.io/rack"] = "another"
	s.ensureRound()
	changed := 0
	for name, version := range s.parts(16) {
		if version != before[name] {
			changed++
		}
	}
	s.Expect(changed).To(Equal(1), "a change of one Machine writes one part")

	s.machines = s.machines[:1]
	s.ensure()
	s.Expect(s.parts(1)).To(HaveLen(1))
	s.Expect(stop()).To(BeNumerically(">", 20), "Nodes that registered meanwhile")
	s.Expect(missed.Load()).To(BeZero())
}

// racks registers Nodes of that many of many Machines.
func (s *policyScene) racks(number int) {
	s.t.Helper()
	named := func(number int) *corev1.Node {
		node := stage.Node(fmt.Sprintf("m-%04d", number))
		anonymous(fmt.Sprintf("10.0.%d.%d", number>>8, number&255))(node)
		return node
	}
	identified := stage.Node("some")
	identified.Spec.ProviderID = racked(number).Spec.ProviderID
	stranger := stage.Node("outsider")
	anonymous("10.0.1.1")(stranger)
	for _, tc := range []struct {
		node *corev1.Node
		rack string
	}{
		{named(number), fmt.Sprint(number % 50)}, {named(number + 1), fmt.Sprint((number + 1) % 50)}, {named(number + 2), fmt.Sprint((number + 2) % 50)},
		{identified, fmt.Sprint(number % 50)},
		{stranger, ""}, // its name might be another Machine's, which nobody sees
	} {
		s.eventuallyRegisters(tc.node, func(g Gomega, made *corev1.Node) {
			g.Expect(made.Annotations["node.cluster.x-k8s.io/rack"]).To(Equal(tc.rack))
		})
		bare := s.bare(tc.node)
		want := s.expected(bare)
		if tc.rack == "" {
			want = inherit.OfNode(bare)
		}
		s.Expect(s.kubelet(tc.node.Name).Create(s.ctx, tc.node)).To(Succeed())
		s.Expect(inherit.OfNode(tc.node)).To(Equal(want), tc.node.Name)
	}
}

// parts are the versions of the parts of the parameters that are divided into so many.
func (s *policyScene) parts(parts int) map[string]string {
	s.t.Helper()
	list := &corev1.ConfigMapList{}
	s.Expect(s.Client.List(s.ctx, list, client.MatchingLabels{policy.PartsLabel: fmt.Sprint(parts)})).To(Succeed())
	versions := map[string]string{}
	for _, part := range list.Items {
		versions[types.NamespacedName{Namespace: part.Namespace, Name: part.Name}.String()] = part.ResourceVersion
	}
	return versions
}

// stream has the Node of that name register again and again. It counts those that did not inherit; stop ends it and returns how
// many there were.
func (s *policyScene) stream(name string) (missed *atomic.Int64, stop func() int64) {
	// No request is broken off: it would be in the audit log as one that failed.
	ctx, cancel := context.WithCancel(s.ctx)
	done, kubelet := make(chan int64, 1), s.kubelet(name)
	missed = &atomic.Int64{}
	go func() {
		var asked int64
		for ; ctx.Err() == nil; asked++ {
			node := stage.Node(name)
			if kubelet.Create(s.ctx, node, client.DryRunAll) != nil || node.Labels["node.cluster.x-k8s.io/pool"] != "gpu" {
				missed.Add(1)
			}
		}
		done <- asked
	}()
	return missed, func() int64 { cancel(); return <-done }
}
