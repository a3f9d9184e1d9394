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

// Every reason to leave an object alone is one word.
func TestReasonsInOneWord(t *testing.T) {
	Expect := NewWithT(t).Expect
	filtered, _ := inherit.Policy{WatchFilter: "blue"}.Skips(&clusterv1.Machine{}, nil)
	for reason, want := range map[inherit.Reason]inherit.Why{
		inherit.IsPaused: inherit.DropPaused, inherit.ClusterIsPaused: inherit.DropPaused,
		inherit.IsIgnored: inherit.DropOptedOut, inherit.ClusterIsIgnored: inherit.DropOptedOut,
		inherit.IsDeleted: inherit.DropDeleting, filtered: inherit.DropWatchFilter,
		inherit.IsNoMachine: inherit.DropNoMatch, inherit.NotOfManagementCluster: inherit.DropNoMatch, inherit.NotOfMachine: inherit.DropNoMatch,
		inherit.OwnerIsNotFound: inherit.DropOwnerNotFound, inherit.ClusterDoesNotExist: inherit.DropOwnerNotFound,
		inherit.NothingDeclares: inherit.DropElsewhere,
	} {
		Expect(reason.Why()).To(Equal(want), string(reason))
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

// What a Node that matches only by an address does not get is withheld, and not outside the synced domains.
func TestWhyNotOnAnUnprovenNode(t *testing.T) {
	Expect := NewWithT(t).Expect
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "m", Labels: labels("node-role.kubernetes.io/a=,team=a,other.kubernetes.io/x=1")}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	p := inherit.Policy{}
	from := p.SourceFor(node, m)
	_, dropped := p.Node(from, inherit.OfNode(node, time.Now()), inherit.Privileged)
	why := func(key string) inherit.Why { return from.WhyNot(dropped, inherit.Entry{What: "label", Name: key}) }
	Expect(why("node-role.kubernetes.io/a")).To(Equal(inherit.DropUnproven))
	Expect(why("team")).To(Equal(inherit.DropOutside))
	Expect(why("other.kubernetes.io/x")).To(Equal(inherit.DropOutside))
	Expect(from.WhyNot(dropped, inherit.Entry{What: "field", Name: "Warm"})).To(Equal(inherit.DropElsewhere))
}

// Taints that wait, wait alone; Initialize taints wait together.
func TestTaintsThatWait(t *testing.T) {
	m := &clusterv1.Machine{}
	m.Spec.Taints = declared("gone:NoExecute,here:NoSchedule,soft:NoSchedule@OnInitialization,hard:NoExecute@OnInitialization")
	from, initialized := inherit.SourceOfMachine(m), inherit.NodeState{Annotations: annotations("capi/taints=")}
	for _, tc := range []struct {
		held  string
		node  inherit.NodeState
		taint string
		want  inherit.Why
	}{
		{held: "gone", node: initialized, taint: "gone:NoExecute", want: inherit.DropWaiting},
		{held: "gone", node: initialized, taint: "here:NoSchedule"},
		{held: "gone", node: initialized, taint: "soft:NoSchedule", want: inherit.DropOnce},
		{held: "hard", taint: "soft:NoSchedule", want: inherit.DropWaiting},
		{held: "hard", taint: "none:NoExecute", want: inherit.DropElsewhere},
	} {
		held := []taint.ID{{Key: tc.held, Effect: corev1.TaintEffectNoExecute}}
		_, dropped := inherit.Policy{}.NodeHolding(from, held, tc.node, inherit.Privileged)
		NewWithT(t).Expect(from.WhyNot(dropped, inherit.Entry{What: "taint", Name: tc.taint})).To(Equal(tc.want), tc.taint)
	}
}
