// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

func TestEntriesOfContent(t *testing.T) {
	Expect := NewWithT(t).Expect
	c := inherit.Content{
		Labels:      map[string]string{"b": "2", "a": "1"},
		Annotations: map[string]string{"x": "1", taint.AlwaysAnnotation: "gpu=annotated:NoSchedule,soft=yes:NoSchedule"},
		Taints:      declared("gpu=typed:NoSchedule"),
		Fields:      inherit.Fields{ReadinessGates: []clusterv1.MachineReadinessGate{{ConditionType: "Warm", Polarity: "Negative"}}},
	}
	c.Fields.Seconds[inherit.NodeDrainTimeout] = ptr.To(int32(60))
	var found []string
	for _, e := range c.Entries() {
		value, ok := c.Value(e)
		Expect(ok).To(BeTrue())
		found = append(found, e.What+" "+e.Name+"="+value)
	}
	Expect(found).To(Equal([]string{
		"label a=1", "label b=2", "annotation taints.heirloom.dev/always=gpu=annotated:NoSchedule,soft=yes:NoSchedule", "annotation x=1",
		"taint gpu:NoSchedule=typed", "taint soft:NoSchedule=yes", "field nodeDrainTimeoutSeconds=60", "field Warm=Negative",
	}))
	for _, name := range []string{"minReadySeconds", "Cold"} {
		_, ok := c.Value(inherit.Entry{What: "field", Name: name})
		Expect(ok).To(BeFalse(), name)
	}
	Expect(c.TypedTaint("gpu:NoSchedule")).To(BeTrue())
	Expect(c.TaintAnnotation("gpu:NoSchedule")).To(BeEmpty())
	Expect(c.TaintAnnotation("soft:NoSchedule")).To(Equal(taint.AlwaysAnnotation))
}

// Inside the synced domains, the reason of a label that a Node misses because it matches only by an address is "unproven"; other labels
// are outside.
func TestWhyNotOnAnUnprovenNode(t *testing.T) {
	Expect := NewWithT(t).Expect
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "m", Labels: map[string]string{"node-role.kubernetes.io/a": "", "team": "a", "other.kubernetes.io/x": "1"}}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	p := inherit.Policy{}
	from := p.SourceFor(node, m)
	_, dropped := planned(p, from, inherit.OfNode(node), privileged)
	why := func(key string) inherit.Why {
		return from.WhyNot(dropped, inherit.Entry{What: "label", Name: key})
	}
	Expect(why("node-role.kubernetes.io/a")).To(Equal(inherit.DropUnproven))
	Expect(why("team")).To(Equal(inherit.DropOutside))
	Expect(why("other.kubernetes.io/x")).To(Equal(inherit.DropOutside))
	Expect(from.WhyNot(dropped, inherit.Entry{What: "field", Name: "Warm"})).To(Equal(inherit.DropElsewhere))
}

// A waiting taint holds back no other taint.
func TestWaitingTaints(t *testing.T) {
	m := &clusterv1.Machine{}
	m.Spec.Taints = declared("gone:NoExecute,here:NoSchedule,soft:NoSchedule@OnInitialization,hard:NoExecute@OnInitialization")
	from := inherit.SourceOfMachine(m)
	for _, tc := range []struct {
		eviction inherit.Eviction
		age      time.Duration
		taint    string
		want     inherit.Why
	}{
		{eviction: inherit.Waits, age: time.Hour, taint: "gone:NoExecute", want: inherit.DropWaiting},
		{eviction: inherit.AsksPods, age: time.Hour, taint: "gone:NoExecute", want: inherit.DropPods},
		{eviction: inherit.Waits, age: time.Hour, taint: "here:NoSchedule"},
		{eviction: inherit.Waits, age: time.Hour, taint: "soft:NoSchedule", want: inherit.DropOnce},
		{eviction: inherit.Waits, age: time.Minute, taint: "hard:NoExecute"},
		{eviction: inherit.Waits, age: time.Hour, taint: "none:NoExecute", want: inherit.DropElsewhere},
	} {
		plan := inherit.Policy{}.PlanNode(aged(inherit.NodeState{}, tc.age), from, inherit.Turn{Eviction: tc.eviction})
		NewWithT(t).Expect(from.WhyNot(plan.LeftOut, inherit.Entry{What: "taint", Name: tc.taint})).To(Equal(tc.want), tc.taint)
	}
}

// A taint with two declarations is inherited if one declaration is valid.
func TestOneOfTwoDeclarationsCounts(t *testing.T) {
	Expect := NewWithT(t).Expect
	m, e := &clusterv1.Machine{}, inherit.Entry{What: "taint", Name: "gpu:NoSchedule"}
	m.Spec.Taints = []clusterv1.MachineTaint{{Key: "gpu", Value: "not valid", Effect: "NoSchedule", Propagation: "Always"}}
	why := func() inherit.Why {
		from := inherit.SourceOfMachine(m)
		_, dropped := planned(inherit.Policy{}, from, inherit.NodeState{}, privileged)
		return from.WhyNot(dropped, e)
	}
	Expect(why()).To(Equal(inherit.DropInvalid))
	m.Annotations = map[string]string{taint.AlwaysAnnotation: "gpu=valid:NoSchedule"}
	Expect(why()).To(BeEmpty())

	e.Own = true
	template := &inherit.Template{Content: inherit.Content{Taints: m.Spec.Taints}}
	desired, dropped := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}.MachineFrom(template, &clusterv1.Machine{})
	Expect(inherit.Decision{Desired: desired, Dropped: dropped}.WhyNot(e)).To(Equal(inherit.DropInvalid))
	desired, dropped = inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}.MachineFrom(template, m)
	Expect(inherit.Decision{Desired: desired, Dropped: dropped}.WhyNot(e)).To(BeEmpty())
}

// Declares reports for the class and for the Cluster whether it declares a taint that the topology's object inherits.
func TestSectionDeclares(t *testing.T) {
	const always, initialize = "taints.heirloom.dev/always=", "taints.heirloom.dev/initialize="
	for _, tc := range []struct {
		name            string
		class, topology content
		want            []bool
	}{
		{name: "the class, by annotation", class: content{annotations: always + "drain:NoExecute"}, want: []bool{true, false}},
		{name: "the class, once", class: content{annotations: initialize + "drain:NoExecute"}, want: []bool{true, false}},
		{name: "the class, by type", class: content{taints: "drain:NoExecute"}, want: []bool{true, false}},
		{name: "the Cluster", topology: content{annotations: always + "drain:NoExecute"}, want: []bool{false, true}},
		{name: "the Cluster's annotation replaces the class's", class: content{annotations: always + "drain:NoExecute"}, topology: content{annotations: always + "other:NoExecute"}, want: []bool{false, false}},
		{name: "the Cluster's list replaces the class's", class: content{taints: "drain:NoExecute"}, topology: content{taints: "other:NoExecute"}, want: []bool{false, false}},
		{name: "both, in two ways", class: content{taints: "drain:NoExecute"}, topology: content{annotations: always + "drain:NoExecute"}, want: []bool{true, true}},
		{name: "neither", class: content{annotations: always + "drain:NoSchedule"}, topology: content{taints: "other:NoExecute"}, want: []bool{false, false}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := inherit.Section{Class: declaredBy(tc.class), Topology: declaredBy(tc.topology)}
			drain, all := inherit.TaintEntry(taint.ID{Key: "drain", Effect: "NoExecute"}), s.Declarations(&clusterv1.Cluster{}, &clusterv1.ClusterClass{})
			NewWithT(t).Expect(all).To(HaveExactElements(HaveField("Kind", "Cluster"), HaveField("Kind", "ClusterClass")))
			NewWithT(t).Expect([]bool{all[1].Declares(drain), all[0].Declares(drain)}).To(Equal(tc.want))
		})
	}
}

// declaredBy returns a section with these declarations; an empty list of taints is not declared.
func declaredBy(c content) inherit.Part {
	part := c.section()
	if len(part.Taints) == 0 {
		part.Taints = nil
	}
	return part
}
