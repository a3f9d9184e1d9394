// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Every reason to leave an object alone is one word.
func TestReasonsInOneWord(t *testing.T) {
	Expect := NewWithT(t).Expect
	filtered, _ := inherit.Policy{WatchFilter: "blue"}.Skips(&clusterv1.Machine{}, nil)
	for reason, want := range map[inherit.Reason]inherit.Dropped{
		inherit.IsPaused: inherit.DropPaused, inherit.ClusterIsPaused: inherit.DropPaused,
		inherit.IsIgnored: inherit.DropOptedOut, inherit.ClusterIsIgnored: inherit.DropOptedOut,
		inherit.IsDeleted: inherit.DropDeleting, filtered: inherit.DropWatchFilter,
		inherit.IsNoMachine: inherit.DropNoMatch, inherit.NotOfManagementCluster: inherit.DropNoMatch, inherit.NotOfMachine: inherit.DropNoMatch,
		inherit.OwnerIsNotFound: inherit.DropOwnerNotFound, inherit.ClusterDoesNotExist: inherit.DropOwnerNotFound,
		inherit.NothingDeclares: inherit.DropElsewhere,
	} {
		Expect(reason.Dropped()).To(Equal(want), string(reason))
	}
}

func TestEntriesOfContent(t *testing.T) {
	Expect := NewWithT(t).Expect
	c := inherit.Content{
		Labels: labels("b=2,a=1"), Annotations: annotations("x=1; taints.heirloom.dev/always=gpu=annotated:NoSchedule,soft=yes:NoSchedule"),
		Taints: declared("gpu=typed:NoSchedule"),
		Fields: inherit.Fields{ReadinessGates: []clusterv1.MachineReadinessGate{{ConditionType: "Warm", Polarity: "Negative"}}},
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

func TestRoomForAnEntry(t *testing.T) {
	Expect := NewWithT(t).Expect
	at := inherit.ControlPlaneLayout("v1beta1", func(path ...string) bool { return path[len(path)-1] == "metadata" }).Template
	for _, e := range []inherit.Entry{{What: "label"}, {What: "annotation"}} {
		Expect(inherit.HasRoom(at, e)).To(BeTrue(), e.What)
	}
	for _, e := range []inherit.Entry{{What: "taint"}, {What: "field", Name: "nodeDrainTimeoutSeconds"}, {What: "field", Name: "Warm"}} {
		Expect(inherit.HasRoom(at, e)).To(BeFalse(), e.What)
	}
}

func TestWhatATopologyOverrides(t *testing.T) {
	Expect := NewWithT(t).Expect
	s := inherit.Section{
		Class:    content{labels: "same=1,other=1,alone=1", annotations: "same=1; other=1; alone=1"}.section(),
		Topology: content{labels: "same=1,other=2", annotations: "same=1; other=2"}.section(),
	}
	s.Class.Taints, s.Class.Fields.Seconds[inherit.NodeDrainTimeout] = declared("both:NoSchedule,old:NoSchedule"), ptr.To(int32(1))
	s.Class.Fields.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "Both"}, {ConditionType: "Old"}}
	over := s.Overridden()
	Expect(over.Taints).To(BeEmpty(), "the topology says nothing about taints")
	Expect(over.Fields.ReadinessGates).To(BeEmpty())

	s.Topology.Taints, s.Topology.Fields.Seconds[inherit.NodeDrainTimeout] = declared("both:NoSchedule"), ptr.To(int32(2))
	s.Topology.Fields.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "Both"}}
	over = s.Overridden()
	Expect(over.Labels).To(Equal(labels("other=1")))
	Expect(over.Annotations).To(Equal(annotations("other=1")))
	Expect(over.Taints).To(Equal(declared("old:NoSchedule")))
	Expect(over.Fields.ReadinessGates).To(ConsistOf(HaveField("ConditionType", "Old")))
	Expect(over.Fields.Seconds[inherit.NodeDrainTimeout]).To(HaveValue(Equal(int32(1))))
}

// What a Node that matches only by an address does not get is withheld, and not outside the synced domains.
func TestWhyNotOnAnUnprovenNode(t *testing.T) {
	Expect := NewWithT(t).Expect
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "m", Labels: labels("node-role.kubernetes.io/a=,team=a,other.kubernetes.io/x=1")}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	p := inherit.Policy{}
	from := p.SourceFor(node, m)
	why := func(key string) inherit.Dropped {
		return p.WhyNotNode(from, inherit.OfNode(node), inherit.Privileged, inherit.Entry{What: "label", Name: key})
	}
	Expect(why("node-role.kubernetes.io/a")).To(Equal(inherit.DropUnproven))
	Expect(why("team")).To(Equal(inherit.DropOutside))
	Expect(why("other.kubernetes.io/x")).To(Equal(inherit.DropOutside))
	Expect(p.WhyNotNode(from, inherit.OfNode(node), inherit.Privileged, inherit.Entry{What: "field", Name: "Warm"})).To(Equal(inherit.DropElsewhere))
}

func TestTaintsThatWait(t *testing.T) {
	Expect := NewWithT(t).Expect
	m := &clusterv1.Machine{}
	m.Spec.Taints = declared("gone:NoExecute,here:NoSchedule,soft:NoSchedule@OnInitialization,hard:NoExecute@OnInitialization")
	from := inherit.SourceOfMachine(m)
	held := []taint.ID{{Key: "gone", Effect: corev1.TaintEffectNoExecute}}
	initialized := inherit.NodeState{Annotations: annotations("capi/taints=")}
	Expect(from.Waits("gone:NoExecute", held, initialized)).To(BeTrue())
	Expect(from.Waits("here:NoSchedule", held, initialized)).To(BeFalse())
	Expect(from.Waits("soft:NoSchedule", held, initialized)).To(BeFalse())
	labelled := inherit.NodeState{Labels: map[string]string{inherit.InitializationLabel: "waiting"}, Annotations: initialized.Annotations}
	Expect(from.Waits("soft:NoSchedule", nil, labelled)).To(BeTrue(), "Initialize taints wait together")
	hard := []taint.ID{{Key: "hard", Effect: corev1.TaintEffectNoExecute}}
	Expect(from.Waits("soft:NoSchedule", hard, inherit.NodeState{})).To(BeTrue(), "with the one that evicts")
	value, ok := from.Taint("gone:NoExecute")
	Expect(value+"|").To(Equal("|"), "it has no value")
	Expect(ok).To(BeTrue())
	_, ok = from.Taint("none:NoExecute")
	Expect(ok).To(BeFalse())
}
