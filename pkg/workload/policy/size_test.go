// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
)

// instance is a Machine of a large cloud, where all DNS names end alike.
func instance(number int) *clusterv1.Machine {
	m := &clusterv1.Machine{}
	m.Namespace, m.Name = "fleet", fmt.Sprintf("workers-%05d", number)
	m.Spec.ProviderID = fmt.Sprintf("aws:///eu-central-1a/i-%017x", number*7919)
	m.Spec.Taints = []clusterv1.MachineTaint{{Key: "number", Value: fmt.Sprint(number % 20), Effect: "NoSchedule", Propagation: "Always"}}
	m.Status.Addresses = []clusterv1.MachineAddress{
		{Type: clusterv1.MachineInternalIP, Address: fmt.Sprintf("10.0.%d.%d", number>>8, number&255)},
		{Type: clusterv1.MachineInternalDNS, Address: fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", number>>8, number&255)},
		{Type: clusterv1.MachineHostName, Address: m.Name},
	}
	return m
}

func instances(count int) []*clusterv1.Machine {
	machines := make([]*clusterv1.Machine, 0, count)
	for number := range count {
		machines = append(machines, instance(number))
	}
	return machines
}

func nodeNamed(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestFiveThousandMachinesWaitForTheirNodes(t *testing.T) {
	Expect := NewWithT(t).Expect
	parts := partsOf(t, instances(5000)...)
	for _, part := range parts {
		Expect(sizeOf(t, part)).To(BeNumerically("<", 100<<10))
	}

	node := nodeNamed("ip-10-0-1-7.eu-central-1.compute.internal")
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.1.7"}, {Type: corev1.NodeHostName, Address: node.Name}}
	e := newEvaluator(t)
	cheaply := func() *corev1.Node {
		got := node
		for _, part := range parts {
			var err error
			got, err = e.patch(got, part, celconfig.RuntimeCELCostBudget/100)
			Expect(err).NotTo(HaveOccurred(), "it takes little of the budget")
		}
		return got
	}
	got := cheaply()
	Expect(got.Spec.Taints).To(ContainElement(corev1.Taint{Key: "number", Value: fmt.Sprint((256 + 7) % 20), Effect: "NoSchedule"}))

	node.Spec.ProviderID = instance(4000).Spec.ProviderID
	got = cheaply()
	Expect(got.Spec.Taints).To(ContainElement(corev1.Taint{Key: "number", Value: "0", Effect: "NoSchedule"}), "the providerID counts before names")
}

// Where all names end alike, the index is of no use, and the Machines are looked through one after the other.
func TestTwoThousandMachinesWithNamesThatEndAlike(t *testing.T) {
	Expect := NewWithT(t).Expect
	machines := instances(2000)
	for number, m := range machines {
		m.Spec.ProviderID = fmt.Sprintf("cloud://%05d/machine", number)
		m.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineHostName, Address: fmt.Sprintf("rack-%05d-prod", number)}}
	}
	node := nodeNamed("rack-00047-prod")
	node.Spec.ProviderID = machines[47].Spec.ProviderID
	got := newEvaluator(t).register(node, partsOf(t, machines...)...)
	Expect(got.Spec.Taints).To(ContainElement(corev1.Taint{Key: "number", Value: "7", Effect: "NoSchedule"}))
}

// One part has no more room than a ConfigMap.
func TestMachinesForWhichThereIsNoRoomAreReported(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		machines []*clusterv1.Machine
		room     int
	}{
		{name: "too many Machines", machines: instances(9000), room: 6000},
		{name: "Machines that declare too much, each something else", machines: verbose(30), room: 7},
		{name: "Machines with many names that have nothing in common", machines: namely(6000), room: 2000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			parameters, err := policy.InParts(1, fleet, complete(tc.machines...), inherit.Policy{})
			var noRoom *policy.NoRoomError
			Expect(errors.As(err, &noRoom)).To(BeTrue())
			Expect(noRoom.Machines).To(And(BeNumerically(">", 0), BeNumerically("<=", len(tc.machines)-tc.room)))
			Expect(err).To(MatchError(ContainSubstring("have no room for")))
			Expect(sizeOf(t, parameters[0])).To(BeNumerically("<", 1400<<10), "etcd takes 1.5 MiB at a time")
			Expect(valuesOf(parameters[0])).To(BeNumerically("<=", 1<<20), "the API server takes no more")

			served, e := 0, newEvaluator(t)
			for i := 0; i < len(tc.machines); i += max(1, len(tc.machines)/6) {
				node := nodeNamed(tc.machines[i].Name)
				want, _ := expected(node, complete(tc.machines...), inherit.Policy{})
				got := inherit.OfNode(e.register(node, parameters...))
				if got.Equal(want) {
					served++
					continue
				}
				Expect(got).To(Equal(inherit.OfNode(node)), "a Node for which there is no room gets nothing, not half of it")
			}
			Expect(served).To(BeNumerically(">", 0), "the others are served")
		})
	}
}

// A Machine for which there is no room still makes a name ambiguous.
func TestNoRoomDoesNotMakeAnotherMachineTheOnlyOne(t *testing.T) {
	machines := verbose(30)
	for _, m := range machines[1:] {
		m.Status.Addresses = append(m.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: "10.1.1." + m.Name[len(m.Name)-2:]})
	}
	last := machines[len(machines)-1]
	machines[0].Status.Addresses = append(machines[0].Status.Addresses, last.Status.Addresses...)
	parameters, err := policy.InParts(1, fleet, complete(machines...), inherit.Policy{})
	NewWithT(t).Expect(err).To(HaveOccurred())
	e := newEvaluator(t)
	NewWithT(t).Expect(e.register(nodeNamed(machines[0].Name), parameters...).Annotations).NotTo(BeEmpty(), "the first has room")
	NewWithT(t).Expect(e.register(nodeNamed(last.Name), parameters...).Annotations).To(BeEmpty(), "its name is the first's as well")
}

// verbose are Machines each of which declares much and something of its own.
func verbose(count int) []*clusterv1.Machine {
	machines := instances(count)
	for _, m := range machines {
		m.Annotations = map[string]string{"node.cluster.x-k8s.io/story": strings.Repeat(m.Name, 10_000)}
	}
	return machines
}

// namely are Machines with names whose endings differ.
func namely(count int) []*clusterv1.Machine {
	machines := instances(count)
	for number, m := range machines {
		m.Status.Addresses = nil
		for i := range 8 {
			name := strconv.FormatInt(int64(36*36*36+(number*8+i)*26), 36)
			m.Status.Addresses = append(m.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: name[:2] + "." + name[2:]})
		}
		m.Name = m.Status.Addresses[0].Address
	}
	return machines
}

// sizeOf is how much etcd has to take at a time.
func sizeOf(t *testing.T, parameters *corev1.ConfigMap) int {
	t.Helper()
	owned := &strings.Builder{}
	for key := range parameters.Data {
		owned.WriteString(`"f:` + key + `":{},`)
	}
	stored := parameters.DeepCopy()
	stored.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "heirloom", FieldsV1: metav1.NewFieldsV1(owned.String())}}
	bytes, err := stored.Marshal()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return len(bytes)
}

func valuesOf(parameters *corev1.ConfigMap) int {
	size := 0
	for _, value := range parameters.Data {
		size += len(value)
	}
	return size
}
