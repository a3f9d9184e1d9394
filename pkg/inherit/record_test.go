// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

const (
	quarantine = "node-restriction.kubernetes.io/quarantine"
	role       = "node-role.kubernetes.io/ingress"
	claims     = "capi/labels=" + quarantine + ",team; own/labels=" + quarantine + ",team; capi/taints=quarantine:NoExecute; own/taints=quarantine=1:NoExecute"
)

// synced returns a Node that has inherited from the Machine in a write of the loop.
func synced(m *clusterv1.Machine) inherit.NodeState {
	return whole(planned(everyLabel(), inherit.SourceOfMachine(m), content{}.node(), privileged))
}

func everyLabel() inherit.Policy {
	return inherit.Policy{AdditionalLabels: regexes("")}
}

// with returns the Node with the additional labels, annotations and taints of another writer.
func with(node inherit.NodeState, more content) inherit.NodeState {
	node.Labels, node.Annotations = merged(node.Labels, labels(more.labels)), merged(node.Annotations, annotations(more.annotations))
	node.Taints = slices.Concat(node.Taints, onNode(more.taints))
	return node
}

func merged(a, b map[string]string) map[string]string {
	m := map[string]string{}
	maps.Copy(m, a)
	maps.Copy(m, b)
	return m
}

// An administrator's label and taint stay, regardless of the tracking annotations that the kubelet writes.
func TestAKubeletCannotHaveAnythingTakenAway(t *testing.T) {
	m := content{labels: role + "=", taints: "gpu:NoSchedule"}.machine()
	foreign := content{labels: quarantine + "=yes,team=theirs", taints: "quarantine=1:NoExecute"}
	before := synced(content{labels: role + "=," + quarantine + "=yes", taints: "gpu:NoSchedule,quarantine=1:NoExecute"}.machine())
	for _, tc := range []struct {
		name, annotations string
		record            func(own string) string
	}{
		{"nothing", "", func(own string) string { return own }},
		{"lists them as inherited", claims, func(own string) string { return own }},
		{"lists them in the record, too", claims, func(string) string { return quarantine + ";quarantine=1:NoExecute" }},
		{"adds them to the record", claims, func(own string) string { return quarantine + "," + own + ",quarantine=1:NoExecute" }},
		{"lists what it had from the Machine once", claims, func(string) string { return before.Annotations[inherit.RecordAnnotation] }},
		{"takes the record away", claims, func(string) string { return "" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			node := with(with(synced(m), foreign), content{annotations: tc.annotations})
			node.Annotations[inherit.RecordAnnotation] = tc.record(node.Annotations[inherit.RecordAnnotation])
			got := whole(planned(everyLabel(), inherit.SourceOfMachine(m), node, privileged))
			Expect(got.Labels).To(HaveKeyWithValue(quarantine, "yes"))
			Expect(got.Labels).To(HaveKey(role))
			Expect(got.Taints).To(ConsistOf(onNode("gpu:NoSchedule,quarantine=1:NoExecute")))
			_, listed := got.Labels["team"]
			Expect(listed).To(Equal(!strings.Contains(tc.annotations, "team")), "a label that the kubelet may remove itself")
			Expect(inherit.RecordOf(got)).To(Equal(inherit.Record{Labels: []string{role}, Taints: onNode("gpu:NoSchedule")}))

			left := inherit.CleanUp(node, false)
			Expect(left.Labels).To(HaveKeyWithValue(quarantine, "yes"))
			Expect(left.Taints).To(ContainElement(onNode("quarantine=1:NoExecute")[0]))
		})
	}
}

// Admission has no memory: it leaves a changed record as it is, so that the loop restores the record and removes what the Machine lost.
func TestAdmissionLeavesAChangedRecordToTheLoop(t *testing.T) {
	Expect := NewWithT(t).Expect
	had := synced(content{labels: quarantine + "=yes", taints: "gpu:NoSchedule"}.machine())
	changed, lost := with(had, content{annotations: inherit.RecordAnnotation + "=x"}), inherit.SourceOfMachine(content{}.machine())
	admitted := everyLabel().PlanNode(old(changed), lost, inherit.Turn{Stored: &changed}).Result
	Expect(admitted.Labels).To(HaveKeyWithValue(inherit.RecordLabel, had.Labels[inherit.RecordLabel]))
	repaired := everyLabel().PlanNode(old(admitted).Restored(inherit.ValidRecord(had)), lost, privileged).Result
	Expect(repaired.Labels).NotTo(HaveKey(quarantine))
	Expect(repaired.Taints).To(BeEmpty())

	updated := everyLabel().PlanNode(old(changed), lost, inherit.Turn{Stored: &had}).Result
	Expect(updated).To(Equal(repaired), "the update that changes the record shows the last valid record")
}

// A kubelet's create can have no label for the record, so the record is signed. The first privileged write removes a taint that the Machine
// has lost since, and believes no other record.
func TestTaintsOfARegistrationGoWithTheirDeclaration(t *testing.T) {
	m, lost := content{taints: "gpu=1:NoSchedule"}.machine(), content{}.machine()
	m.UID, lost.UID = "1", "1"
	created := whole(planned(everyLabel(), inherit.SourceOfMachine(m), content{}.node(), kubelet))
	other := lost.DeepCopy()
	other.UID = "2"
	signed := created.Annotations[inherit.RecordAnnotation]
	for _, tc := range []struct {
		name, record string
		machine      *clusterv1.Machine
		stays        string
	}{
		{"the record of the registration", signed, lost, "quarantine=1:NoExecute"},
		{"without a signature", ";gpu=1:NoSchedule,quarantine=1:NoExecute", lost, "gpu=1:NoSchedule,quarantine=1:NoExecute"},
		{"with another taint", strings.Replace(signed, "gpu=1:NoSchedule", "quarantine=1:NoExecute", 1), lost, "gpu=1:NoSchedule,quarantine=1:NoExecute"},
		{"with more parts", signed + ";quarantine=1:NoExecute", lost, "gpu=1:NoSchedule,quarantine=1:NoExecute"},
		{"of another Machine", signed, other, "gpu=1:NoSchedule,quarantine=1:NoExecute"},
	} {
		for _, admitted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, admitted=%t", tc.name, admitted), func(t *testing.T) {
				node := with(created, content{taints: "quarantine=1:NoExecute", annotations: "own/taints=gpu=1:NoSchedule,quarantine=1:NoExecute"})
				node.Annotations[inherit.RecordAnnotation] = tc.record
				turn := privileged
				if admitted {
					turn.Stored = &node
				}
				got := whole(planned(everyLabel(), inherit.SourceOfMachine(tc.machine), node, turn))
				got.Taints = taint.Remove(got.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint))
				NewWithT(t).Expect(got.Taints).To(ConsistOf(onNode(tc.stays)))
				NewWithT(t).Expect(inherit.RecordOf(got)).To(Equal(inherit.Record{}))
			})
		}
	}
}

// A Node that initializes gets its OnInitialization taints once, regardless of the annotations that its kubelet writes. An older Node gets
// none, also if Heirloom meets it for the first time.
func TestWhoInitializes(t *testing.T) {
	m := content{taints: "boot:NoSchedule@OnInitialization"}.machine()
	for _, tc := range []struct {
		name   string
		state  inherit.NodeState
		age    time.Duration
		stored string
		want   bool
	}{
		{"it claims to have had them", inherit.NodeState{Annotations: annotations("capi/taints=")}, time.Minute, "", true},
		{"it claims a record", inherit.NodeState{Annotations: annotations("capi/taints=boot:NoSchedule; heirloom.dev/record-from-machine=;boot:NoSchedule")}, time.Minute, "", true},
		{"it claims nothing", inherit.NodeState{}, time.Minute, "", true},
		{"the loop has been there, and somebody has taken the taint away", inherit.NodeState{Labels: synced(m).Labels}, time.Minute, "", false},
		{"it has run for a while", inherit.NodeState{}, time.Hour, "", false},
		{"it has run for a while, with Cluster API", inherit.NodeState{Annotations: annotations("capi/taints=")}, time.Hour, "", false},
		{"Cluster API has not written it yet", inherit.NodeState{Taints: onNode(uninitialized)}, time.Hour, "", true},
		{"Cluster API writes it for the first time", inherit.NodeState{Annotations: annotations("capi/taints=")}, time.Hour, uninitialized, true},
		{"somebody adds the taint again", inherit.NodeState{Labels: synced(m).Labels, Taints: onNode(uninitialized)}, time.Hour, uninitialized, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect, turn := NewWithT(t).Expect, inherit.Turn{Stored: &inherit.NodeState{Taints: onNode(tc.stored)}}
			got := inherit.Policy{}.PlanNode(aged(tc.state, tc.age), inherit.SourceOfMachine(m), turn).Result
			Expect(taint.Find(got.Taints, taint.IDOf(onNode("boot:NoSchedule")[0])) >= 0).To(Equal(tc.want))
			got.Taints = nil
			later := inherit.Policy{}.PlanNode(aged(got, tc.age), inherit.SourceOfMachine(m), turn).Result
			Expect(later.Taints).To(BeEmpty(), "once")
		})
	}
}

// No kubelet's create has the record's label, which NodeRestriction would refuse, and no Machine can declare it.
func TestTheRecordsLabel(t *testing.T) {
	Expect := NewWithT(t).Expect
	m := content{labels: inherit.RecordLabel + "=forged," + role + "="}.machine()
	created := whole(planned(everyLabel(), inherit.SourceOfMachine(m), content{}.node(), kubelet))
	Expect(created.Labels).To(BeEmpty())
	Expect(created.Annotations).NotTo(HaveKey(inherit.RecordAnnotation))
	node := synced(m)
	Expect(node.Labels[inherit.RecordLabel]).NotTo(Equal("forged"))
	Expect(inherit.RecordOf(node).Labels).To(Equal([]string{role}))
	Expect(inherit.Policy{}.PlanNode(aged(content{}.node(), 0), inherit.SourceOfMachine(m), privileged).Added).To(HaveLen(1), "the record is not reported")
	m.Labels[inherit.RecordLabel] = "forged"
	node.Labels[inherit.RecordLabel] = "forged" // by Cluster API
	left := whole(planned(everyLabel(), inherit.SourceOfMachine(m), node, privileged))
	Expect(left.Labels).To(HaveKeyWithValue(inherit.RecordLabel, "forged"), "Heirloom does not fight over a label")
}

// If a kubelet fills its annotations, the entries that its Machine lost still go, and no taint is kept away.
func TestNodesWithoutRoomForAnnotations(t *testing.T) {
	Expect := NewWithT(t).Expect
	const room = apivalidation.TotalAnnotationSizeLimitB
	full := synced(content{labels: role + "=," + quarantine + "=", taints: "gpu:NoSchedule"}.machine())
	now := content{labels: role + "=", taints: "gpu:NoSchedule,new:NoSchedule,boot:NoSchedule@OnInitialization"}.machine()
	for name, change := range map[string]func(map[string]string){
		"the lists are gone": func(a map[string]string) { delete(a, clusterv1.LabelsFromMachineAnnotation) },
		"all are gone":       func(a map[string]string) { clear(a) },
	} {
		node := with(full, content{})
		change(node.Annotations)
		free := room
		for key, value := range node.Annotations {
			free -= len(key) + len(value)
		}
		node.Annotations["filler"] = strings.Repeat("x", free-len("filler"))
		plan := func(node inherit.NodeState) inherit.NodePlan {
			return everyLabel().PlanNode(old(node).Restored(inherit.ValidRecord(full)), inherit.SourceOfMachine(now), privileged)
		}
		first := plan(node)
		got := first.Result
		Expect(first.LeftOut.Problems()).To(MatchError(ContainSubstring("a Node has no room for all of them")), name)
		Expect(got.Labels).To(And(HaveKey(role), Not(HaveKey(quarantine))), name)
		Expect(taint.FormatIDs(got.Taints)).To(Equal("gpu:NoSchedule,new:NoSchedule"), name)
		Expect(apivalidation.ValidateAnnotationsSize(got.Annotations)).To(Succeed(), name)
		delete(got.Annotations, "filler")
		roomy := plan(got).Result
		Expect(roomy.Labels).To(And(HaveKey(role), Not(HaveKey(quarantine))), name)
	}
}

// The record keeps the state of a Node, and reads it again.
func TestTheRecordKeepsTheState(t *testing.T) {
	Expect := NewWithT(t).Expect
	for _, r := range []inherit.Record{
		{}, {Labels: []string{role}}, {Taints: onNode("gpu=1:NoSchedule")}, {Softened: noon}, {Gates: []string{"a:NoSchedule", "b:NoExecute"}},
		{Labels: []string{role, "x.k8s.io/a"}, Taints: onNode("gpu=1:NoSchedule,z:NoExecute"), Softened: noon.Add(time.Second), Gates: []string{"a:NoSchedule"}},
		{Taints: onNode("gates=dedicated:NoSchedule,z:NoSchedule")}, {Taints: onNode("softened=1:NoSchedule"), Gates: []string{"a:NoSchedule"}},
	} {
		node := r.Recorded(inherit.NodeState{})
		slices.Sort(r.Labels)
		Expect(inherit.RecordOf(node)).To(Equal(r))
		Expect(inherit.RecordOf(node).Recorded(node)).To(Equal(node))
		node.Annotations[inherit.RecordAnnotation] += ";softened=2026-11-28T00:00:00Z"
		Expect(inherit.RecordOf(node)).To(BeZero(), "its kubelet has changed it")
	}
}

// For every change that a kubelet may write, only recorded entries are removed.
func TestOnlyRecordedEntriesAreRemoved(t *testing.T) {
	pick := func(t *rapid.T, from []string, separator string) string {
		return strings.Join(rapid.SliceOfDistinct(rapid.SampledFrom(from), rapid.ID).Draw(t, ""), separator)
	}
	keys := []string{quarantine, role, "kubernetes.io/x", "team", "node.cluster.x-k8s.io/a", "topology.kubernetes.io/zone"}
	taints := []string{"quarantine:NoExecute", "gpu=1:NoSchedule", "gpu=2:NoSchedule", "node-role.kubernetes.io/x:NoSchedule"}
	rapid.Check(t, func(t *rapid.T) {
		Expect := NewWithT(t).Expect
		declared := func() content { return content{labels: pick(t, keys, "=,"), taints: pick(t, taints, ",")} }
		was, now := synced(declared().machine()), declared().machine()
		node := with(was, content{labels: pick(t, keys, "=,")})
		node.Taints = append(taint.Remove(node.Taints, taint.ID{Key: "quarantine", Effect: "NoExecute"}), onNode("quarantine:NoExecute")...)
		for _, name := range inherit.TrackingAnnotations {
			if rapid.Bool().Draw(t, name) {
				node.Annotations[name] = pick(t, keys, ",") + oneOf(t, "", ";", ",", ";,") + pick(t, taints, ",")
			}
		}
		record := inherit.RecordOf(node)
		got := whole(planned(everyLabel(), inherit.SourceOfMachine(now), node, privileged))
		for key := range node.Labels {
			if strings.Contains(key, "kubernetes.io/") && !slices.Contains(record.Labels, key) {
				Expect(got.Labels).To(HaveKey(key))
			}
		}
		for _, t := range node.Taints {
			if taint.Find(record.Taints, taint.IDOf(t)) < 0 {
				Expect(taint.Find(got.Taints, taint.IDOf(t))).To(BeNumerically(">=", 0), "%v", t)
			}
		}
	})
}
