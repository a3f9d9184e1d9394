// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
)

// TestTheFormatIsTheDocumentedOne fails with every change of the encoding. It takes another version of the format: API
// servers go on with the policy that they have until they have seen both of the new objects.
func TestTheFormatIsTheDocumentedOne(t *testing.T) {
	Expect := NewWithT(t).Expect
	worker := instance(7)
	worker.Labels = map[string]string{"node.cluster.x-k8s.io/a": "1", "node.cluster.x-k8s.io/b": "", "node-role.kubernetes.io/withheld": ""}
	worker.Annotations = map[string]string{
		"node.cluster.x-k8s.io/odd": "two\nlines, 100%", "taints.heirloom.dev/initialize": "a-b:NoExecute,a=1:NoSchedule",
	}
	same := worker.DeepCopy()
	same.Name, same.Spec.ProviderID, same.Status = "workers-00008", "", clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: "α"}}
	controller := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "controller", Labels: map[string]string{clusterv1.MachineControlPlaneLabel: ""}}}
	controller.Spec.ProviderID = "p://1/α"
	paused := controller.DeepCopy()
	paused.Name, paused.Annotations = "paused", map[string]string{clusterv1.PausedAnnotation: ""}
	nobody := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}}

	parts, err := policy.Parameters(fleet, complete(nobody, same, worker, paused, controller), inherit.Policy{}, 1)
	Expect(err).NotTo(HaveOccurred())
	Expect(parts).To(HaveLen(1))
	parameters := parts[0]
	Expect(parameters.Namespace).To(Equal(policy.Namespace))
	Expect(parameters.Annotations).To(HaveKeyWithValue("heirloom.dev/cluster", "fleet/prod"))
	Expect(parameters.Data).To(Equal(map[string]string{
		"format": "1",
		"c.1":    "\n\n\ncluster.x-k8s.io/taints-from-machine=",
		"c.2": "guard\nnode.cluster.x-k8s.io/a=1,node.cluster.x-k8s.io/b=\na=1:NoSchedule,a-b=:NoExecute,number=7:NoSchedule\n" +
			"cluster.x-k8s.io/annotations-from-machine=node.cluster.x-k8s.io/odd\n" +
			"cluster.x-k8s.io/labels-from-machine=node.cluster.x-k8s.io/a,node.cluster.x-k8s.io/b\n" +
			"cluster.x-k8s.io/taints-from-machine=number:NoSchedule\n" +
			"node.cluster.x-k8s.io/odd=two%0Alines, 100%25",
		"m.0":     "1\np://1/α\n",
		"m.1":     "\np://1/α\n",
		"m.2":     "2\naws:///eu-central-1a/i-0000000000000d889\n\n10.0.0.7\nip-10-0-0-7.eu-central-1.compute.internal\nworkers-00007",
		"m.3":     "2\n\nα",
		"i..":     "0,1,3",
		"i.89.89": "2",
		"i..7.10": "2",
		"i.al.-7": "2",
		"i.07.07": "2",
	}))
}

// Cluster API removes from a Node what its own annotations list and the Machine does not have, so these list nothing else. What the
// Machine has counts as ever.
func TestWhatAMachineDoesNotHaveYetIsListedAsHeirlooms(t *testing.T) {
	const (
		key, other, note = "node.cluster.x-k8s.io/a", "node.cluster.x-k8s.io/b", "node.cluster.x-k8s.io/note"
		noTaints         = "cluster.x-k8s.io/taints-from-machine="
	)
	for _, tc := range []struct {
		name string
		// has is what the Machine has of what it will have.
		has  func(*clusterv1.Machine)
		want []string
	}{
		{name: "nothing", has: func(m *clusterv1.Machine) { m.Labels, m.Annotations, m.Spec.Taints = nil, nil, nil }, want: []string{
			noTaints, "heirloom.dev/annotations-from-machine=" + note, "heirloom.dev/labels-from-machine=" + key + "," + other,
			"heirloom.dev/taints-from-machine=gpu=yes:NoSchedule",
		}},
		{name: "one label of two", has: func(m *clusterv1.Machine) { m.Labels = map[string]string{other: "2"} }, want: []string{
			"cluster.x-k8s.io/annotations-from-machine=" + note, "cluster.x-k8s.io/labels-from-machine=" + other,
			"cluster.x-k8s.io/taints-from-machine=gpu:NoSchedule", "heirloom.dev/labels-from-machine=" + key,
		}},
		{name: "no taint", has: func(m *clusterv1.Machine) { m.Spec.Taints = nil }, want: []string{
			"cluster.x-k8s.io/annotations-from-machine=" + note, "cluster.x-k8s.io/labels-from-machine=" + key + "," + other, noTaints,
			"heirloom.dev/taints-from-machine=gpu=yes:NoSchedule",
		}},
		{name: "everything", has: func(*clusterv1.Machine) {}, want: []string{
			"cluster.x-k8s.io/annotations-from-machine=" + note, "cluster.x-k8s.io/labels-from-machine=" + key + "," + other,
			"cluster.x-k8s.io/taints-from-machine=gpu:NoSchedule",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			m := declaring("m")
			m.Labels, m.Annotations = map[string]string{key: "1", other: "2"}, map[string]string{note: "ours"}
			m.Spec.Taints = []clusterv1.MachineTaint{
				{Key: "gpu", Value: "yes", Effect: "NoSchedule", Propagation: "Always"},
				{Key: "once", Effect: "NoSchedule", Propagation: "OnInitialization"},
			}
			actual := m.DeepCopy()
			tc.has(actual)
			parts, err := policy.Parameters(fleet, []inherit.Machine{{Actual: actual, Effective: m}}, inherit.Policy{}, 1)
			Expect(err).NotTo(HaveOccurred())
			lines := strings.Split(parts[0].Data["c.1"], "\n")
			Expect(lines[:3]).To(Equal([]string{"guard", key + "=1," + other + "=2", "gpu=yes:NoSchedule,once=:NoSchedule"}), "the Node gets all of it")
			Expect(lines[3:]).To(ConsistOf(append(tc.want, note+"=ours")))
		})
	}
}

// The label that opts a Machine out counts once the Machine has it, as for the webhook.
func TestAMachineThatWillBeSkippedIsNotYet(t *testing.T) {
	now := declaring("m")
	later := now.DeepCopy()
	later.Labels[inherit.IgnoreLabel] = ""
	for _, tc := range []struct {
		machine inherit.Machine
		brings  bool
	}{
		{machine: inherit.Machine{Actual: now, Effective: later}, brings: true},
		{machine: inherit.Machine{Actual: later, Effective: later}},
	} {
		parts, err := policy.Parameters(fleet, []inherit.Machine{tc.machine}, inherit.Policy{}, 1)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		_, brings := parts[0].Data["c.1"]
		NewWithT(t).Expect(brings).To(Equal(tc.brings))
	}
}

// A line break would make one Machine look like another. No Node has one in its name or its providerID.
func TestMachinesWithLineBreaksAreLeftOut(t *testing.T) {
	for _, change := range []func(*clusterv1.Machine){
		func(m *clusterv1.Machine) { m.Spec.ProviderID = "a\nb" },
		func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "a\nb" },
		func(m *clusterv1.Machine) { m.Status.Addresses[0].Address = "a\nb" },
	} {
		m := instance(1)
		change(m)
		NewWithT(t).Expect(parametersOf(t, m).Data).To(Equal(parametersOf(t).Data))
	}
}

// A Node that an API server refuses never comes to be. Better one that has nothing but its taints.
func TestNothingIsBroughtThatAnAPIServerWouldRefuse(t *testing.T) {
	everything := inherit.Policy{AdditionalLabels: []*regexp.Regexp{regexp.MustCompile("")}, AdditionalAnnotations: []*regexp.Regexp{regexp.MustCompile("")}}
	for _, tc := range []struct {
		name   string
		change func(*clusterv1.Machine)
		fine   bool
	}{
		{name: "many annotations", change: func(m *clusterv1.Machine) { m.Annotations["node.cluster.x-k8s.io/a"] = strings.Repeat("a", 200<<10) }, fine: true},
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
			parameters, err := policy.Parameters(fleet, complete(m), everything, 1)
			Expect(err).NotTo(HaveOccurred())
			Expect(parameters[0].Data).To(HaveKey("m.0"), "it is a candidate")
			node := newEvaluator(t).register(nodeNamed(m.Name), parameters...)
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
