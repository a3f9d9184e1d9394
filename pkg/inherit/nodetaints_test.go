// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

func TestEvicting(t *testing.T) {
	const drain, drainID = "drain=now:NoExecute", "drain:NoExecute"
	for _, tc := range []struct {
		name             string
		typed, annotated string
		initialize       string
		age              time.Duration
		has, before      string
		tracked          string
		untracked        bool
		want             []string
	}{
		{name: "a new NoExecute taint evicts", typed: drain, age: time.Hour, want: []string{drainID}},
		{name: "so does one that is declared by annotation", annotated: drain, age: time.Hour, want: []string{drainID}},
		{name: "other effects do not", typed: "drain=now:NoSchedule", age: time.Hour},
		{name: "one that the Node has does not", typed: drain, age: time.Hour, has: drain},
		{name: "one whose value an owner has changed evicts", typed: drain, age: time.Hour, has: "drain=old:NoExecute", tracked: "own/taints=drain=old:NoExecute", want: []string{drainID}},
		{name: "one whose value somebody else has changed is put back at once", typed: drain, age: time.Hour, has: "drain=x:NoExecute", tracked: "own/taints=" + drain},
		{name: "one that was taken away from the Node is put back at once", typed: drain, age: time.Hour, tracked: "capi/taints=drain:NoExecute"},
		{name: "one that this very write takes away has evicted all it can", typed: drain, age: time.Hour, before: drain},
		{name: "unless it was stored with another value", typed: drain, age: time.Hour, before: "drain=x:NoExecute", want: []string{drainID}},
		{name: "a Node that is registering gets everything", typed: drain, initialize: "boot:NoExecute", age: time.Minute, untracked: true},
		{name: "one that existed before Heirloom does not", typed: drain, age: time.Hour, untracked: true, want: []string{drainID}},
		{name: "a young Node that has inherited already does not", typed: drain, age: time.Minute, want: []string{drainID}},

		{name: "nor to an old Node that was never initialized", typed: drain + "@OnInitialization", initialize: "boot:NoExecute", age: time.Hour, untracked: true},
		{name: "a Node that Cluster API has not written yet gets everything", typed: drain, initialize: "boot:NoExecute", age: time.Hour, untracked: true, has: uninitialized},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"note": "x"}}}
			m.Spec.Taints = declared(tc.typed)
			if tc.annotated != "" {
				m.Annotations[taint.AlwaysAnnotation] = tc.annotated + ",gpu:NoSchedule"
			}
			if tc.initialize != "" {
				m.Annotations[taint.InitializeAnnotation] = tc.initialize
			}
			state := inherit.NodeState{Taints: onNode(tc.has)}
			if !tc.untracked {
				state.Annotations = annotations("capi/taints=; " + tc.tracked)
				state.Labels = map[string]string{inherit.RecordLabel: ""}
			}
			turn := inherit.Turn{Eviction: inherit.Waits, Stored: &inherit.NodeState{Taints: onNode(tc.before)}}

			plan := inherit.Policy{}.PlanNode(aged(state, tc.age), inherit.SourceOfMachine(m), turn)
			Expect(ids(plan.Evicting)).To(Equal(tc.want))
			Expect(plan.Held).To(Equal(plan.Evicting))
			if tc.annotated != "" {
				Expect(plan.Unprotected).To(ContainElement(HaveField("Key", "gpu")), "the others stay")
				Expect(plan.Result.Taints).To(ContainElement(HaveField("Key", "gpu")))
			}
			turn.Eviction = inherit.EvictsNow
			Expect(inherit.Policy{}.PlanNode(aged(state, tc.age), inherit.SourceOfMachine(m), turn).Held).To(BeEmpty())
		})
	}
}

// An update by Cluster API, whose cache is stale, may bring a taint back together with its list. It goes in the same write: afterwards nothing
// would say that it came from the Machine. A taint that was there before, or comes without the list, stays.
func TestTaintsThatAStaleCacheBringsBack(t *testing.T) {
	for _, tc := range []struct{ name, machine, before, update, want string }{
		{name: "with its list", update: "gone:NoSchedule; capi/taints=gone:NoSchedule"},
		{name: "with any value", update: "gone=x:NoSchedule; capi/taints=gone:NoSchedule"},
		{name: "what the Machine declares stays", machine: "kept:NoSchedule", update: "kept:NoSchedule; capi/taints=kept:NoSchedule", want: "kept:NoSchedule"},
		{name: "without the list", update: "theirs:NoSchedule; capi/taints=", want: "theirs:NoSchedule"},
		{name: "the Node had it", before: "theirs:NoSchedule; capi/taints=", update: "theirs:NoSchedule; capi/taints=theirs:NoSchedule", want: "theirs:NoSchedule"},
		{name: "the list had it", before: "; capi/taints=theirs:NoSchedule", update: "theirs:NoSchedule; capi/taints=theirs:NoSchedule", want: "theirs:NoSchedule"},
	} {
		state := func(text string) inherit.NodeState {
			taints, lists, _ := strings.Cut(text, "; ")
			return content{taints: taints, annotations: lists}.node()
		}
		before, policy := inherit.Record{}.Recorded(state(tc.before)), inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}
		update := inherit.Record{}.Recorded(state(tc.update))
		plan := policy.PlanNode(old(update), inherit.SourceOfMachine(content{taints: tc.machine}.machine()), inherit.Turn{Stored: &before})
		NewWithT(t).Expect(ids(plan.Result.Taints)).To(Equal(ids(onNode(tc.want))), tc.name)
	}
}

// The loop sees such a taint afterwards. It leaves both to Cluster API, which removes what its list has: without the entry in the list, the
// taint would stay for good. If Cluster API does not propagate taints, nobody reads its list.
func TestTaintsThatAreLeftToClusterAPI(t *testing.T) {
	brought := inherit.Record{}.Recorded(content{taints: "gone:NoSchedule,theirs:NoSchedule", annotations: "capi/taints=gone:NoSchedule"}.node())
	for state, want := range map[inherit.TaintPropagation]string{
		inherit.PropagationEnabled: "kept:NoSchedule,gone:NoSchedule", inherit.PropagationUnknown: "kept:NoSchedule,gone:NoSchedule", inherit.PropagationDisabled: "",
	} {
		from := inherit.SourceOfMachine(content{taints: "kept:NoSchedule"}.machine())
		if state == inherit.PropagationDisabled {
			from = inherit.SourceOfMachine(content{}.machine())
		}
		result := inherit.Policy{ClusterAPITaints: state}.PlanNode(old(brought), from, inherit.Turn{}).Result
		NewWithT(t).Expect(ids(result.Taints)).To(ContainElements("gone:NoSchedule", "theirs:NoSchedule"), fmt.Sprint(state))
		listed := slices.Sorted(strings.SplitSeq(result.Annotations["cluster.x-k8s.io/taints-from-machine"], ","))
		NewWithT(t).Expect(listed).To(Equal(slices.Sorted(strings.SplitSeq(want, ","))), fmt.Sprint(state))
	}
}

func ids(taints []corev1.Taint) (all []string) {
	for _, t := range taints {
		all = append(all, taint.IDOf(t).String())
	}
	return all
}

// For every Machine and Node, held taints evict no Pods, and no held taint is lost.
func TestHoldingEvictsNothingAndLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		Expect := NewWithT(t).Expect
		from, policy := inherit.SourceOfMachine(declaring.Draw(t, "Machine").machine()), policies.Draw(t, "policy")
		has := inheriting.Draw(t, "Node").node()
		turn := inherit.Turn{Eviction: rapid.SampledFrom([]inherit.Eviction{inherit.Waits, inherit.AsksPods}).Draw(t, "turn")}
		plan := policy.PlanNode(old(has), from, turn)
		for _, held := range plan.Held {
			i, before := taint.Find(plan.Result.Taints, taint.IDOf(held)), taint.Find(has.Taints, taint.IDOf(held))
			if i >= 0 && (before < 0 || has.Taints[before].Value != plan.Result.Taints[i].Value) {
				t.Fatalf("%v came before its turn: %v", held, describe(plan.Result))
			}
		}
		again := policy.PlanNode(old(plan.Result), from, inherit.Turn{Eviction: inherit.Waits})
		Expect(again.Held).To(ConsistOf(plan.Held), "the same taints still wait")
		Expect(again.Changes()).To(BeFalse(), "they wait in the same way")
		becomes := policy.PlanNode(old(plan.Result), from, inherit.Turn{Eviction: inherit.AsksPods, PodsLeft: plan.Held}).Result
		for _, held := range plan.Held {
			Expect(taint.Find(becomes.Taints, taint.IDOf(held))).To(BeNumerically(">=", 0), "%v was lost", held)
		}
	})
}

// After its turn, a Node has NoSchedule in place of NoExecute, and only NoExecute once its Pods have left.
func TestSoftenedTaints(t *testing.T) {
	const drain = "taints.heirloom.dev/always=drain=a:NoExecute"
	for _, tc := range []struct {
		name           string
		machine, node  content
		waits, becomes content
		withdrawn      []string
	}{
		{
			name: "a typed taint", machine: content{taints: "drain=a:NoExecute"},
			waits:     content{taints: "drain=a:NoSchedule", annotations: "capi/taints=; own/taints=drain=a:NoSchedule"},
			becomes:   content{taints: "drain=a:NoExecute", annotations: "capi/taints=drain:NoExecute"},
			withdrawn: []string{"annotation cluster.x-k8s.io/taints-from-machine="},
		},
		{
			name: "the value that the Node has stays until its Pods have left", machine: content{annotations: drain},
			node:    content{taints: "drain=old:NoExecute", annotations: "capi/taints=; own/taints=drain=old:NoExecute"},
			waits:   content{taints: "drain=old:NoExecute,drain=a:NoSchedule", annotations: "capi/taints=; own/taints=drain=a:NoSchedule,drain=old:NoExecute"},
			becomes: content{taints: "drain=a:NoExecute", annotations: "capi/taints=; own/taints=drain=a:NoExecute"},
		},
		{
			name: "NoSchedule that the owner declares stands", machine: content{annotations: drain + ",drain=b:NoSchedule"},
			waits:   content{taints: "drain=b:NoSchedule", annotations: "capi/taints=; own/taints=drain=b:NoSchedule"},
			becomes: content{taints: "drain=b:NoSchedule,drain=a:NoExecute", annotations: "capi/taints=; own/taints=drain=a:NoExecute,drain=b:NoSchedule"},
		},
		{
			name: "NoSchedule of somebody else stays, before and after", machine: content{annotations: drain},
			node:      content{taints: "drain=theirs:NoSchedule", annotations: "capi/taints="},
			waits:     content{taints: "drain=theirs:NoSchedule", annotations: "capi/taints="},
			becomes:   content{taints: "drain=theirs:NoSchedule,drain=a:NoExecute", annotations: "capi/taints=; own/taints=drain=a:NoExecute"},
			withdrawn: []string{"annotation cluster.x-k8s.io/taints-from-machine=", "taint drain=theirs:NoSchedule"},
		},
		{
			name: "only what evicts is softened", machine: content{annotations: "taints.heirloom.dev/always=boot:NoExecute,cold:NoSchedule"},
			waits:   content{taints: "boot:NoSchedule,cold:NoSchedule", annotations: "capi/taints=; own/taints=boot:NoSchedule,cold:NoSchedule"},
			becomes: content{taints: "boot:NoExecute,cold:NoSchedule", annotations: "capi/taints=; own/taints=boot:NoExecute,cold:NoSchedule"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			policy, turn := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}, inherit.Turn{Eviction: inherit.AsksPods}
			write := func(m content, turn inherit.Turn, has inherit.NodeState) inherit.NodeState {
				plan := policy.PlanNode(old(has), inherit.SourceOfMachine(m.machine()), turn)
				Expect(plan.LeftOut.Problems()).To(Succeed())
				return plan.Result
			}
			waits := write(tc.machine, turn, tc.node.node())
			Expect(describe(waits)).To(ConsistOf(describe(tc.waits.node())))
			Expect(inherit.RecordOf(waits).Softened).To(Equal(noon))
			Expect(write(tc.machine, turn, waits).Equal(waits)).To(BeTrue(), "it stays so")
			Expect(write(tc.machine, inherit.Turn{Eviction: inherit.Waits}, waits).Equal(waits)).To(BeTrue(), "also in a write of somebody else")
			undone := waits
			for _, t := range inherit.RecordOf(waits).Taints {
				if t.Effect == corev1.TaintEffectNoSchedule {
					undone.Taints = taint.Remove(undone.Taints, taint.IDOf(t))
				}
			}
			Expect(write(tc.machine, turn, undone).Taints).To(ConsistOf(waits.Taints), "Heirloom's taint is restored")
			turn.PodsLeft = policy.PlanNode(old(waits), inherit.SourceOfMachine(tc.machine.machine()), turn).Held
			becomes := write(tc.machine, turn, waits)
			Expect(describe(becomes)).To(ConsistOf(describe(tc.becomes.node())))
			Expect(inherit.RecordOf(becomes).Softened).To(BeZero())
			if tc.withdrawn != nil {
				Expect(describe(write(content{}, turn, waits))).To(ConsistOf(tc.withdrawn))
			}
		})
	}
}

// Pods that have left because of one taint have not left because of another.
func TestPodsLeaveForTheirTaints(t *testing.T) {
	Expect := NewWithT(t).Expect
	turn := inherit.Turn{Eviction: inherit.AsksPods, PodsLeft: onNode("drain:NoExecute")}
	plan := func(m content) inherit.NodePlan {
		return inherit.Policy{}.PlanNode(old(content{}.node()), inherit.SourceOfMachine(m.machine()), turn)
	}
	Expect(plan(content{taints: "drain:NoExecute"}).Held).To(BeEmpty())
	Expect(plan(content{taints: "drain:NoExecute,more:NoExecute"}).Held).To(HaveLen(2))
}

// A Node whose turn cannot be recorded gets its taints at once: neither a kubelet that fills its annotations nor a Machine that declares the
// record's label keeps them away.
func TestTaintsWithoutRoomForATurn(t *testing.T) {
	filled := content{annotations: "filler=" + strings.Repeat("x", apivalidation.TotalAnnotationSizeLimitB-len("filler"))}.node()
	forged := content{labels: inherit.RecordLabel + "=e3b0c44298fc1c149afbf4c8996fb924"}
	for name, tc := range map[string]struct {
		machine content
		node    inherit.NodeState
	}{
		"no room": {content{taints: "drain:NoExecute"}, filled},
		"forged":  {content{labels: forged.labels, taints: "drain:NoExecute"}, inherit.NodeState{Labels: labels(forged.labels), Annotations: annotations("capi/taints=")}},
	} {
		plan := inherit.Policy{}.PlanNode(old(tc.node), inherit.SourceOfMachine(tc.machine.machine()), inherit.Turn{Eviction: inherit.AsksPods})
		NewWithT(t).Expect(ids(plan.Result.Taints)).To(Equal([]string{"drain:NoExecute"}), name)
	}
}

// Cluster API copies a Machine's labels of this domain to the Node. Labels that look like Heirloom's marks give a Node no turn and no
// state, and Heirloom does not fight over them.
func TestMarksOfAMachineAreNotBelieved(t *testing.T) {
	const domain = "heirloom.node-restriction.kubernetes.io/"
	marks := domain + "softened=20200101T000000Z," + domain + "initialization=waiting," + inherit.RecordLabel + "=e3b0c44298fc1c149afbf4c8996fb924"
	m := content{labels: marks, taints: "drain:NoExecute,boot:NoSchedule@OnInitialization"}.machine()
	node := inherit.NodeState{Labels: labels(marks), Annotations: annotations("capi/taints=")}
	for _, eviction := range []inherit.Eviction{inherit.Waits, inherit.EvictsNow} {
		Expect := NewWithT(t).Expect
		plan := inherit.Policy{}.PlanNode(old(node), inherit.SourceOfMachine(m), inherit.Turn{Eviction: eviction})
		Expect(ids(plan.Evicting)).To(Equal([]string{"drain:NoExecute"}))
		Expect(plan.WaitsForPods()).To(BeFalse())
		Expect(plan.Result.Labels).To(Equal(node.Labels))
		Expect(taint.Find(plan.Result.Taints, taint.IDOf(onNode("boot:NoSchedule")[0]))).To(BeNumerically("<", 0), "an old Node")
	}
	plan := inherit.Policy{}.PlanNode(aged(node, time.Minute), inherit.SourceOfMachine(m), inherit.Turn{})
	NewWithT(t).Expect(ids(plan.Result.Taints)).To(ContainElement("boot:NoSchedule"), "a new Node has not been initialized, whatever its labels say")
}
