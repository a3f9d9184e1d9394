// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

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
	return whole(everyLabel().Node(inherit.SourceOfMachine(m), content{}.node(), inherit.Privileged))
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
			got := whole(everyLabel().Node(inherit.SourceOfMachine(m), node, inherit.Privileged))
			Expect(got.Labels).To(HaveKeyWithValue(quarantine, "yes"))
			Expect(got.Labels).To(HaveKey(role))
			Expect(got.Taints).To(ConsistOf(onNode("gpu:NoSchedule,quarantine=1:NoExecute")))
			_, listed := got.Labels["team"]
			Expect(listed).To(Equal(!strings.Contains(tc.annotations, "team")), "a label that the kubelet may remove itself")
			Expect(inherit.RecordOf(got)).To(Equal(inherit.Record{Labels: []string{role}, Taints: onNode("gpu:NoSchedule")}))

			left := inherit.Release(node, false)
			Expect(left.Labels).To(HaveKeyWithValue(quarantine, "yes"))
			Expect(left.Taints).To(ContainElement(onNode("quarantine=1:NoExecute")[0]))
		})
	}
}

// A Node that only its kubelet has written gets its OnInitialization taints, regardless of its annotations.
func TestClaimsAtRegistration(t *testing.T) {
	m := content{taints: "boot:NoSchedule@OnInitialization"}.machine()
	for _, tc := range []struct {
		name string
		node func() inherit.NodeState
		want bool
	}{
		{"it claims to have had them", func() inherit.NodeState {
			return inherit.NodeState{New: true, Annotations: annotations("capi/taints=")}
		}, true},
		{"it claims a record", func() inherit.NodeState {
			node := inherit.NodeState{New: true, Annotations: annotations("capi/taints=boot:NoSchedule")}
			node.Annotations[inherit.RecordAnnotation] = ";boot:NoSchedule"
			return node
		}, true},
		{"it claims nothing", func() inherit.NodeState { return inherit.NodeState{New: true} }, true},
		{"the loop has been there, and somebody has taken the taint away", func() inherit.NodeState {
			node := synced(m)
			node.New, node.Taints = true, nil
			return node
		}, false},
		{"it has run for a while", func() inherit.NodeState { return inherit.NodeState{Annotations: annotations("capi/taints=")} }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := whole(inherit.Policy{}.Node(inherit.SourceOfMachine(m), tc.node(), inherit.Privileged))
			NewWithT(t).Expect(taint.Find(got.Taints, taint.IDOf(onNode("boot:NoSchedule")[0])) >= 0).To(Equal(tc.want))
		})
	}
}

// No kubelet's create has the record's label, which NodeRestriction would refuse, and no Machine can declare it.
func TestTheRecordsLabel(t *testing.T) {
	Expect := NewWithT(t).Expect
	m := content{labels: inherit.RecordLabel + "=forged," + role + "="}.machine()
	created := whole(everyLabel().Node(inherit.SourceOfMachine(m), content{}.node(), inherit.Kubelet))
	Expect(created.Labels).To(BeEmpty())
	Expect(created.Annotations).NotTo(HaveKey(inherit.RecordAnnotation))
	node := synced(m)
	Expect(node.Labels[inherit.RecordLabel]).NotTo(Equal("forged"))
	Expect(inherit.RecordOf(node).Labels).To(Equal([]string{role}))
	Expect(inherit.Brought(content{}.node(), node)).To(HaveLen(1), "the record is not reported")
	for _, mark := range []string{inherit.RecordLabel, inherit.InitializationLabel, inherit.SoftenedLabel} {
		m.Labels[mark] = "forged"
		node.Labels[mark] = "forged" // by Cluster API
		left := whole(everyLabel().Node(inherit.SourceOfMachine(m), node, inherit.Privileged))
		Expect(left.Labels).To(HaveKeyWithValue(mark, "forged"), "Heirloom does not fight over a label")
	}
}

// If a kubelet fills its annotations, the entries that its Machine lost still go, and no taint is kept away.
func TestAKubeletThatFillsItsAnnotations(t *testing.T) {
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
		believed := inherit.Restored(node, inherit.ValidRecord(full))
		got, dropped := everyLabel().Node(inherit.SourceOfMachine(now), believed, inherit.Privileged)
		Expect(dropped.Problems()).To(MatchError(ContainSubstring("a Node has no room for all of them")), name)
		Expect(got.Labels).To(And(HaveKey(role), Not(HaveKey(quarantine))), name)
		Expect(taint.FormatIDs(got.Taints)).To(Equal("gpu:NoSchedule,new:NoSchedule"), name)
		if believed.Fits() {
			Expect(got.Fits()).To(BeTrue(), name)
		}
		delete(got.Annotations, "filler")
		roomy := whole(everyLabel().Node(inherit.SourceOfMachine(now), inherit.Restored(got, inherit.ValidRecord(full)), inherit.Privileged))
		Expect(roomy.Labels).To(And(HaveKey(role), Not(HaveKey(quarantine))), name)
	}
}

// For every change that a kubelet may write, only recorded entries are removed.
func TestNothingGoesThatIsNotRecorded(t *testing.T) {
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
		got := whole(everyLabel().Node(inherit.SourceOfMachine(now), node, inherit.Privileged))
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
