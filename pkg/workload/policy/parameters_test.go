// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
)

// TestTheFormatIsTheDocumentedOne fails with every change of the encoding. A change needs another version of the format: API servers go on
// with the old MutatingAdmissionPolicy until they have loaded both new objects.
func TestTheFormatIsTheDocumentedOne(t *testing.T) {
	Expect := NewWithT(t).Expect
	worker := instance(7)
	worker.Labels = map[string]string{"node.cluster.x-k8s.io/a": "1", "node.cluster.x-k8s.io/b": "", "node-role.kubernetes.io/withheld": ""}
	worker.Annotations = map[string]string{
		"node.cluster.x-k8s.io/odd": "two\nlines, 100%", "taints.heirloom.dev/initialize": "a-b:NoExecute,a=1:NoSchedule",
	}
	same := worker.DeepCopy()
	same.Name, same.Spec.ProviderID, same.Status.Addresses = "workers-00008", "", same.Status.Addresses[:1]
	controller := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "controller", Labels: map[string]string{clusterv1.MachineControlPlaneLabel: ""}}}
	controller.Spec.ProviderID = "p://1/α"
	paused := controller.DeepCopy()
	paused.Name, paused.Annotations = "paused", map[string]string{clusterv1.PausedAnnotation: ""}
	there, elsewhere := instance(9), instance(10)
	there.Status.NodeRef.Name, elsewhere.Status.NodeRef.Name = "workers-00007", "elsewhere"

	parameters := parametersOf(t, same, worker, paused, there, controller, elsewhere)
	Expect(parameters.Namespace).To(Equal(policy.Namespace))
	Expect(parameters.Name).To(Equal(policy.Name))
	Expect(parameters.Data).To(Equal(map[string]string{
		"format": "2",
		"machines": "1\tp://1/α\n" +
			"\tp://1/α\n" +
			"2\taws:///eu-central-1a/i-0000000000000d889\t10.0.0.7\tip-10-0-0-7.eu-central-1.compute.internal\tworkers-00007\n" +
			"2\t\t10.0.0.7\n" +
			"\t\tworkers-00007",
		"c.1": "\n\n\ncluster.x-k8s.io/taints-from-machine=",
		"c.2": "guard\nnode.cluster.x-k8s.io/a=1,node.cluster.x-k8s.io/b=\na=1:NoSchedule,a-b=:NoExecute,number=7:NoSchedule\n" +
			"cluster.x-k8s.io/annotations-from-machine=node.cluster.x-k8s.io/odd\n" +
			"cluster.x-k8s.io/labels-from-machine=node.cluster.x-k8s.io/a,node.cluster.x-k8s.io/b\n" +
			"cluster.x-k8s.io/taints-from-machine=number:NoSchedule\n" +
			"heirloom.dev/record-from-machine=;number=7:NoSchedule;signed=3ccc21bc0cc8fa736e4bd1f9bc8b51acde07d63f9fa8be46eff040aa80dd6f5c\n" +
			"node.cluster.x-k8s.io/odd=two%0Alines, 100%25",
	}))
}

// A tab or a line break would make a Machine look like another. No Node has a tab or a line break in its name.
func TestSeparatorsInNamesAndProviderIDs(t *testing.T) {
	Expect := NewWithT(t).Expect
	const machine = "1\taws:///eu-central-1a/i-00000000000001eef\t10.0.0.1\tip-10-0-0-1.eu-central-1.compute.internal\tworkers-00001"
	for _, separator := range []string{"\n", "\t"} {
		named, identified, there := instance(1), instance(2), instance(3)
		named.Status.Addresses = append(named.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: "a" + separator + "b"})
		Expect(parametersOf(t, named).Data["machines"]).To(Equal(machine))
		identified.Spec.ProviderID, there.Status.NodeRef.Name = "a"+separator+"b", "a"+separator+"b"
		identified.Status.Addresses[0].Address = "10.0.0.1"
		Expect(parametersOf(t, named, identified, there).Data["machines"]).To(Equal(machine+"\n\t\t10.0.0.1"), "it may be either")
	}
}

// An API server would refuse to create a Node with an invalid entry. A Node with only its taints is better.
func TestPolicyKeepsNodesValid(t *testing.T) {
	everything := inherit.Policy{AdditionalLabels: []*regexp.Regexp{regexp.MustCompile("")}, AdditionalAnnotations: []*regexp.Regexp{regexp.MustCompile("")}}
	for _, tc := range []struct {
		name   string
		change func(*clusterv1.Machine)
		fine   bool
	}{
		{name: "many annotations", change: func(m *clusterv1.Machine) { m.Annotations["node.cluster.x-k8s.io/a"] = strings.Repeat("a", 200<<10) }, fine: true},
		{name: "many keys", change: func(m *clusterv1.Machine) {
			for number := range 3500 {
				m.Annotations[fmt.Sprintf("node.cluster.x-k8s.io/%d", number)] = ""
			}
		}, fine: true},
		{name: "so many annotations that there is no room for the kubelet's", change: func(m *clusterv1.Machine) { m.Annotations["node.cluster.x-k8s.io/a"] = strings.Repeat("a", 240<<10) }},
		{name: "so many keys that their record is too much", change: func(m *clusterv1.Machine) {
			for number := range 5000 {
				m.Annotations[fmt.Sprintf("node.cluster.x-k8s.io/%d", number)] = ""
			}
		}},
		{name: "a label with a value that cannot be", change: func(m *clusterv1.Machine) { m.Labels["team"] = "a b" }},
		{name: "a label with a comma", change: func(m *clusterv1.Machine) { m.Labels["team"] = "a,b=c" }},
		{name: "a label with a key that cannot be", change: func(m *clusterv1.Machine) { m.Labels["a/b/c"] = "" }},
		{name: "an annotation with a key that cannot be", change: func(m *clusterv1.Machine) { m.Annotations["a=b"] = "" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			m := instance(1)
			m.Labels, m.Annotations = map[string]string{}, map[string]string{}
			tc.change(m)
			node := evaluatorBy(t, everything).register(nodeNamed(m.Name), parametersBy(t, everything, complete(m)))
			Expect(node.Spec.Taints).To(ContainElement(HaveField("Key", "number")))
			brought := append(slices.Collect(maps.Keys(node.Labels)), slices.Collect(maps.Keys(node.Annotations))...)
			for _, key := range slices.Concat(slices.Collect(maps.Keys(m.Labels)), slices.Collect(maps.Keys(m.Annotations))) {
				Expect(slices.Contains(brought, key)).To(Equal(tc.fine), key)
			}
			node.Annotations["kubelet"] = strings.Repeat("x", 30<<10)
			Expect(apivalidation.ValidateAnnotations(node.Annotations, nil)).To(BeEmpty())
			Expect(metav1validation.ValidateLabels(node.Labels, nil)).To(BeEmpty())
		})
	}
}

// instance returns a Machine of a large cloud, where all DNS names have the same end.
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

// anonymous returns a Node with addresses and without a providerID.
func anonymous(name string, addresses ...string) *corev1.Node {
	node := nodeNamed(name)
	for _, address := range addresses {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	return node
}

// The largest possible number of Machines costs an API server a part of its budget, and the right Machine is found.
func TestManyMachinesWaitForTheirNodes(t *testing.T) {
	Expect := NewWithT(t).Expect
	e, machines := newEvaluator(t), instances(900)
	parameters := parametersOf(t, machines...)
	node := anonymous("ip-10-0-1-7.eu-central-1.compute.internal", "10.0.1.7", "fd00::7", "192.168.0.7")
	got, err := e.patch(node, parameters, celconfig.PerCallLimit/4)
	Expect(err).NotTo(HaveOccurred())
	Expect(got.Spec.Taints).To(ContainElement(corev1.Taint{Key: "number", Value: fmt.Sprint((256 + 7) % 20), Effect: "NoSchedule"}))

	node.Spec.ProviderID = machines[800].Spec.ProviderID
	got = e.register(node, parameters)
	Expect(got.Spec.Taints).To(ContainElement(corev1.Taint{Key: "number", Value: "0", Effect: "NoSchedule"}), "the providerID counts before names")

	for i := range 64 { // no kubelet has so many addresses
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.16.0.%d", i)})
	}
	_, err = e.patch(node, parameters, celconfig.RuntimeCELCostBudget)
	Expect(err).To(MatchError(ContainSubstring("cost")), "an API server ignores the error, and creates the Node unchanged")
}

// The error counts the Machines that have no room. Their Nodes inherit nothing, and are not matched with other Machines.
func TestParametersWithoutRoom(t *testing.T) {
	for _, tc := range []struct {
		name     string
		machines []*clusterv1.Machine
		room     int
	}{
		{name: "too many Machines", machines: instances(1500), room: 800},
		{name: "Machines that declare too much, each something else", machines: verbose(30), room: 7},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			first, last := tc.machines[0], tc.machines[len(tc.machines)-1]
			first.Status.Addresses = append(first.Status.Addresses, last.Status.Addresses[0])
			made, err := policy.Parameters(t.Context(), complete(tc.machines...), inherit.Policy{})
			var noRoom *policy.NoRoomError
			Expect(errors.As(err, &noRoom)).To(BeTrue())
			Expect(noRoom.Machines).To(And(BeNumerically(">", 0), BeNumerically("<=", len(tc.machines)-tc.room)))
			parameters := typed[corev1.ConfigMap](t, made)
			values := 0
			for _, value := range parameters.Data {
				values += len(value)
			}
			Expect(values).To(And(BeNumerically(">", 90_000), BeNumerically("<=", 1<<20)), "an API server accepts no more")

			e := newEvaluator(t)
			Expect(e.register(nodeNamed(first.Name), parameters).Annotations).NotTo(BeEmpty())
			for _, node := range []*corev1.Node{nodeNamed(last.Name), anonymous(first.Name, last.Status.Addresses[0].Address)} {
				got := e.register(node, parameters)
				Expect(inherit.OfNode(got)).To(Equal(inherit.OfNode(node)), "it waits for the loop")
			}
			identified := nodeNamed(last.Status.Addresses[0].Address)
			identified.Spec.ProviderID = first.Spec.ProviderID
			Expect(e.register(identified, parameters).Annotations).NotTo(BeEmpty(), "a providerID is no name")
		})
	}
}

// Machines that no Node can match take no room from others.
func TestParametersSkipMachinesWithoutIdentity(t *testing.T) {
	Expect := NewWithT(t).Expect
	unknown := instance(2)
	unknown.Spec.ProviderID, unknown.Status.Addresses = "", nil
	made, err := policy.Parameters(t.Context(), complete(unknown), inherit.Policy{})
	Expect(err).NotTo(HaveOccurred())
	Expect(made.Object["data"]).To(Equal(map[string]any{"format": "2", "machines": ""}))
}

// The MutatingAdmissionPolicy accepts content up to a limit. A Machine with longer content counts as a Machine without room.
func TestParametersSkipLongContent(t *testing.T) {
	Expect := NewWithT(t).Expect
	machines := instances(2)
	machines[1].Annotations = map[string]string{"node.cluster.x-k8s.io/a": strings.Repeat("%", 180<<10)}
	made, err := policy.Parameters(t.Context(), complete(machines...), inherit.Policy{})
	Expect(err).To(MatchError(&policy.NoRoomError{Machines: 1}))
	Expect(made.Object["data"]).To(HaveLen(3), "the format, the Machines, and the content of the other Machine")
}

// verbose returns Machines with long declarations, each different.
func verbose(count int) []*clusterv1.Machine {
	machines := instances(count)
	for _, m := range machines {
		m.Annotations = map[string]string{"node.cluster.x-k8s.io/story": strings.Repeat(m.Name, 8_000)}
	}
	return machines
}
