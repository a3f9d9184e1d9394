// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

func TestParseFact(t *testing.T) {
	for text, wrong := range map[string]string{
		"AcmeMachine.infrastructure.cluster.x-k8s.io:metadata.labels['example.com/a=b']=rack":                  "",
		"Machine.cluster.x-k8s.io:spec.failureDomain=topology.kubernetes.io/zone":                              "",
		"Machine.cluster.x-k8s.io:metadata.annotations['a']=a":                                                 "",
		"AcmeMachine.infrastructure.cluster.x-k8s.io:spec.nics[0].addresses[12]=nic":                           "",
		"AcmeMachine.infrastructure.cluster.x-k8s.io:spec.nics[x].name=nic":                                    "elements of lists, such as spec.disks[0].type",
		"AcmeMachine.infrastructure.cluster.x-k8s.io:spec.nics[100].name=nic":                                  "elements of lists",
		"AcmeMachine.infrastructure.cluster.x-k8s.io:spec.nics.[0]=nic":                                        "elements of lists",
		"AcmeMachine.infrastructure.cluster.x-k8s.io:.spec.nics=nic":                                           "must be <Kind>.<group>",
		`{"group": "a.example.com", "kind": "A", "fieldPath": "spec.a", "label": "a", "values": {"x y": "z"}}`: "",
		`{group: a.example.com, kind: A, fieldPath: spec.a, label: a, presence: true}`:                         "",
		`{"kind": "A", "fieldPath": "spec.a", "label": "a"}`:                                                   "must be <Kind>.<group>",
		`{"group": "a.example.com", "kind": "A", "fieldPath": "spec.a", "label": "a", "value": {}}`:            `unknown field "value"`,
		`{"group": "a.example.com", "kind": "A", "fieldPath": "spec.a", "label": "a", "values": {"x": "y z"}}`: `"x": "y z": neither may be empty`,
		`{"group": "a.example.com", "kind": "A", "fieldPath": "spec.a", "label": "a", "values": {"x": ""}}`:    `"x": "": neither may be empty`,
		`{"group": "a.example.com", "kind": "A", "fieldPath": "spec.a", "label": "a", "values": {"": "x"}}`:    `"": "x": neither may be empty`,
		"Machine.cluster.x-k8s.io:spec.version=version":                                                        "only spec.failureDomain",
		"AcmeMachine:spec.size=size":                                                                           "must be <Kind>.<group>",
		"AcmeMachine.infrastructure.cluster.x-k8s.io":                                                          "must be <Kind>.<group>",
		"AcmeMachine.infrastructure.cluster.x-k8s.io:spec.size=a b":                                            `the label "a b"`,
		"AcmeMachine.infrastructure.cluster.x-k8s.io:spec.size=heirloom.dev/size":                              "Nodes never inherit",
		"AcmeMachine.infrastructure.cluster.x-k8s.io:spec.size=heirloom.node-restriction.kubernetes.io/record": "Nodes never inherit",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := inherit.ParseFact(text)
			if wrong == "" {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(wrong)))
		})
	}
}

// A fact sets a label of the Node unless somebody else owns the label, follows its object, and goes with it. If the object cannot be
// read, all labels stay.
func TestFacts(t *testing.T) {
	const (
		zone = "Machine.cluster.x-k8s.io:spec.failureDomain=topology.kubernetes.io/zone"
		size = "AcmeMachine.infrastructure.cluster.x-k8s.io:spec.size=example.com/size"
		mine = "own/labels=example.com/size"
		nic  = "AcmeMachine.infrastructure.cluster.x-k8s.io:spec.nics[1].name=example.com/size"
		more = "{group: infrastructure.cluster.x-k8s.io, kind: AcmeMachine, label: example.com/size, fieldPath: spec.size, "
	)
	for _, tc := range []struct {
		name, fact, object string
		unknown            bool
		machine, node      content
		want, dropped      string
	}{
		{name: "a text", fact: size, object: "{spec: {size: xl}}", want: "example.com/size=xl"},
		{name: "a number", fact: size, object: "{spec: {size: 8}}", want: "example.com/size=8"},
		{name: "a label of Kubernetes", fact: zone, object: "{spec: {failureDomain: z1}}", want: "topology.kubernetes.io/zone=z1"},
		{name: "a list", fact: size, object: "{spec: {size: [a]}}", dropped: "is not a string"},
		{name: "no value of a label", fact: size, object: "{spec: {size: a b}}", dropped: `"a b" is not a valid label value`},
		{name: "an element of a list", fact: nic, object: "{spec: {nics: [{name: a}, {name: b}]}}", want: "example.com/size=b"},
		{name: "no such element", fact: nic, object: "{spec: {nics: [{name: a}]}}"},
		{name: "no list", fact: nic, object: "{spec: {nics: {name: a}}}", dropped: "is not a string"},
		{name: "an element of no object", fact: nic, object: "{spec: {nics: [a, b]}}", dropped: "is not a string"},
		{name: "an object is there", fact: more + "presence: true}", object: "{spec: {size: {}}}", want: "example.com/size=true"},
		{name: "a list is there", fact: more + "presence: true}", object: "{spec: {size: [a]}}", want: "example.com/size=true"},
		{name: "a list is empty", fact: more + "presence: true}", object: "{spec: {size: []}}"},
		{name: "a text is empty", fact: more + "presence: true}", object: "{spec: {size: ''}}"},
		{name: "false is not there", fact: more + "presence: true}", object: "{spec: {size: false}}"},
		{name: "nothing is there", fact: more + "presence: true}", object: "{spec: {}}"},
		{name: "presence has a value", fact: more + "presence: true, values: {'true': spot}}", object: "{spec: {size: {}}}", want: "example.com/size=spot"},
		{name: "a value of the map", fact: more + "values: {a b: ab, '8': eight}}", object: "{spec: {size: a b}}", want: "example.com/size=ab"},
		{name: "a number of the map", fact: more + "values: {a b: ab, '8': eight}}", object: "{spec: {size: 8}}", want: "example.com/size=eight"},
		{name: "no value of the map", fact: more + "values: {a: b}}", object: "{spec: {size: xl}}", dropped: `the values of the fact lack "xl"`},
		{name: "no value for the map", fact: more + "values: {a: b}}", object: "{spec: {}}"},
		{name: "a label of the Machine wins", fact: size, object: "{spec: {size: xl}}", machine: content{labels: "example.com/size=own"}},
		{name: "another value", fact: size, object: "{spec: {size: xl}}", node: content{labels: "example.com/size=s", annotations: mine}, want: "example.com/size=xl"},
		{name: "somebody else's value", fact: size, object: "{spec: {size: xl}}", node: content{labels: "example.com/size=s"}, want: "example.com/size=s"},
		{name: "before the cloud provider", fact: size, object: "{spec: {size: xl}}", node: content{taints: "node.cloudprovider.kubernetes.io/uninitialized:NoSchedule"}},
		{name: "gone", fact: size, object: "{}", node: content{labels: "example.com/size=s", annotations: mine}},
		{name: "unknown", fact: size, unknown: true, node: content{labels: "example.com/size=s", annotations: mine}, want: "example.com/size=s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			fact, err := inherit.ParseFact(tc.fact)
			Expect(err).NotTo(HaveOccurred())
			object := map[string]any{}
			Expect(yaml.Unmarshal([]byte(tc.object), &object)).To(Succeed())
			value := fact.In(object)
			value.Unknown = tc.unknown
			m, node, policy := tc.machine.machine(), tc.node.initialized(), inherit.Policy{Facts: []inherit.Fact{fact}}
			from := inherit.SourceOfMachine(m).AheadOf(m).WithFacts([]inherit.FactValue{value}, old(node))
			got, problems := withProblems(planned(policy, from, node, privileged))
			expectProblem(t, problems, tc.dropped)
			delete(got.Labels, inherit.RecordLabel)
			Expect(got.Labels).To(Equal(labels(tc.want)))
			again, _ := planned(policy, from, got, privileged)
			delete(again.Labels, inherit.RecordLabel)
			Expect(again).To(Equal(got))
			created, _ := planned(policy, from, node, kubelet)
			Expect(created.Labels).NotTo(HaveKey("topology.kubernetes.io/zone"), "NodeRestriction might refuse it")
		})
	}
}

// A kubelet that lists a label of Kubernetes as inherited does not make it Heirloom's: the value of the cloud provider stays. If the
// kubelet changes the record, a fact that Heirloom has set stays as well.
func TestAKubeletDoesNotDecideWhoseAFactIs(t *testing.T) {
	Expect := NewWithT(t).Expect
	const zone = "topology.kubernetes.io/zone"
	fact, err := inherit.ParseFact("Machine.cluster.x-k8s.io:spec.failureDomain=" + zone)
	Expect(err).NotTo(HaveOccurred())
	policy, m := inherit.Policy{Facts: []inherit.Fact{fact}}, content{}.machine()
	planned := func(node inherit.Node, value inherit.FactValue) inherit.NodeState {
		from := inherit.SourceOfMachine(m).AheadOf(m).WithFacts([]inherit.FactValue{value}, node)
		return policy.PlanNode(node, from, privileged).Result
	}
	for _, said := range []inherit.FactValue{{Fact: fact, Value: "z1"}, {Fact: fact, Unknown: true}} {
		node := inherit.NodeState{Labels: labels(zone + "=cloud"), Annotations: annotations("own/labels=" + zone)}
		got := planned(old(node), said)
		Expect(got.Labels).To(HaveKeyWithValue(zone, "cloud"))
		Expect(inherit.RecordOf(got).Labels).To(BeEmpty())
	}
	set := planned(old(inherit.NodeState{}), inherit.FactValue{Fact: fact, Value: "z1"})
	changed := with(set, content{annotations: inherit.RecordAnnotation + "=x"})
	Expect(planned(old(changed).Restored(inherit.ValidRecord(set)), inherit.FactValue{Fact: fact, Value: "z1"})).To(Equal(set))
}

// cluster-autoscaler learns the zone of new Nodes if the template has a failure domain.
func TestFactsForTheAutoscaler(t *testing.T) {
	Expect := NewWithT(t).Expect
	fact, err := inherit.ParseFact("Machine.cluster.x-k8s.io:spec.failureDomain=topology.kubernetes.io/zone")
	Expect(err).NotTo(HaveOccurred())
	policy := inherit.Policy{Facts: []inherit.Fact{fact}}
	object := inherit.Object{Top: inherit.Content{Annotations: bounds("0 to 1")}, Template: &inherit.Content{}}
	told, _ := policy.Capacity(object, inherit.Object{}, fact.In(map[string]any{"spec": map[string]any{"failureDomain": "z1"}}))
	Expect(told).To(HaveKeyWithValue(inherit.CapacityLabelsAnnotation, "topology.kubernetes.io/zone=z1"))
	told, _ = policy.Capacity(object, inherit.Object{}, fact.In(map[string]any{}))
	Expect(told).To(BeEmpty())
}

// Workers get the role, control planes do not. The role goes when the operator removes the setting.
func TestWorkerRole(t *testing.T) {
	Expect := NewWithT(t).Expect
	const key = "node-role.kubernetes.io/worker"
	policy, m, node := inherit.Policy{WorkerRole: "worker"}, content{}.machine(), &corev1.Node{}
	m.Spec.ProviderID, node.Spec.ProviderID = "p", "p"
	got, _ := planned(policy, policy.SourceFor(node, m).AheadOf(m), content{}.initialized(), privileged)
	Expect(got.Labels).To(HaveKeyWithValue(key, ""))
	without, _ := planned(inherit.Policy{}, inherit.Policy{}.SourceFor(node, m).AheadOf(m), got, privileged)
	Expect(without.Labels).NotTo(HaveKey(key))
	controller := content{}.controller()
	controller.Spec.ProviderID = "p"
	got, _ = planned(policy, policy.SourceFor(node, controller), content{}.initialized(), privileged)
	Expect(got.Labels).NotTo(HaveKey(key))
}
