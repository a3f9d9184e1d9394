// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

const (
	quarantine = "node-restriction.kubernetes.io/quarantine"
	role       = "node-role.kubernetes.io/ingress"
	claims     = "capi/labels=" + quarantine + ",team; own/labels=" + quarantine + ",team; capi/taints=quarantine:NoExecute; own/taints=quarantine=1:NoExecute"
)

// synced is a Node that has inherited from the Machine in a write of the loop.
func synced(t *testing.T, m *clusterv1.Machine) inherit.NodeState {
	t.Helper()
	node, err := withProblems(everyLabel().Node(inherit.SourceOfMachine(m), content{}.node(), inherit.Privileged))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return node
}

func everyLabel() inherit.Policy {
	return inherit.Policy{AdditionalLabels: regexes("")}
}

// with returns the Node with more labels, annotations and taints, as somebody else writes them.
func with(node inherit.NodeState, more content) inherit.NodeState {
	node.Labels, node.Annotations = merged(node.Labels, labels(more.labels)), merged(node.Annotations, annotations(more.annotations))
	node.Taints = slices.Concat(node.Taints, onNode(more.taints))
	return node
}

func merged(a, b map[string]string) map[string]string {
	m := map[string]string{}
	for _, from := range []map[string]string{a, b} {
		for key, value := range from {
			m[key] = value
		}
	}
	return m
}

// TestAKubeletCannotHaveAnythingTakenAway: an administrator's label and taint stay, whatever the kubelet writes into the
// annotations that say what came from the Machine.
func TestAKubeletCannotHaveAnythingTakenAway(t *testing.T) {
	m := content{labels: role + "=", taints: "gpu:NoSchedule"}.machine()
	foreign := content{labels: quarantine + "=yes,team=theirs", taints: "quarantine=1:NoExecute"}
	before := synced(t, content{labels: role + "=," + quarantine + "=yes", taints: "gpu:NoSchedule,quarantine=1:NoExecute"}.machine())
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
			node := with(with(synced(t, m), foreign), content{annotations: tc.annotations})
			node.Annotations[inherit.RecordAnnotation] = tc.record(node.Annotations[inherit.RecordAnnotation])
			got, err := withProblems(everyLabel().Node(inherit.SourceOfMachine(m), node, inherit.Privileged))
			Expect(err).NotTo(HaveOccurred())
			Expect(got.Labels).To(HaveKeyWithValue(quarantine, "yes"))
			Expect(got.Labels).To(HaveKey(role))
			Expect(got.Taints).To(ConsistOf(onNode("gpu:NoSchedule,quarantine=1:NoExecute")))
			_, listed := got.Labels["team"]
			Expect(listed).To(Equal(!strings.Contains(tc.annotations, "team")), "a label that it may take away itself")
			Expect(inherit.RecordOf(got)).To(Equal(inherit.Record{Labels: []string{role}, Taints: onNode("gpu:NoSchedule")}))

			left := inherit.Release(node, false)
			Expect(left.Labels).To(HaveKeyWithValue(quarantine, "yes"))
			Expect(left.Taints).To(ContainElement(onNode("quarantine=1:NoExecute")[0]))
		})
	}
}

// What the Machine does not declare any more goes, also where the kubelet would rather keep it.
func TestAKubeletCannotKeepWhatIsNoLongerDeclared(t *testing.T) {
	full := synced(t, content{labels: role + "=", taints: "gpu:NoSchedule", annotations: "taints.heirloom.dev/always=a=1:NoExecute"}.machine())
	for _, tc := range []struct {
		name   string
		change func(map[string]string)
		known  bool
	}{
		{"nothing is changed", func(map[string]string) {}, false},
		{"the lists are gone", func(a map[string]string) {
			for _, name := range inherit.TrackingAnnotations {
				if name != inherit.RecordAnnotation {
					delete(a, name)
				}
			}
		}, false},
		{"the record is gone, which the loop knows", func(a map[string]string) { clear(a) }, true},
		{"the record is another, which the loop knows", func(a map[string]string) { a[inherit.RecordAnnotation] = ";" }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			node := with(full, content{})
			tc.change(node.Annotations)
			if tc.known {
				node = inherit.Restored(node, inherit.ValidRecord(full))
			}
			got, err := withProblems(everyLabel().Node(inherit.SourceOfMachine(content{}.machine()), node, inherit.Privileged))
			Expect(err).NotTo(HaveOccurred())
			Expect(got.Taints).To(BeEmpty())
			Expect(unrecorded(got).Labels).To(BeEmpty())
			Expect(got.Annotations).NotTo(HaveKey(inherit.RecordAnnotation), "an empty record needs no annotation")
			again, err := withProblems(everyLabel().Node(inherit.SourceOfMachine(content{}.machine()), got, inherit.Privileged))
			Expect(err).NotTo(HaveOccurred())
			Expect(again.Equal(got)).To(BeTrue(), "it costs one write")
		})
	}
}

// A record that the loop remembers and that is not the Node's newest is not put back.
func TestAnOlderRecordIsNotRestored(t *testing.T) {
	Expect := NewWithT(t).Expect
	older, newer := synced(t, content{labels: role + "="}.machine()), synced(t, content{labels: quarantine + "="}.machine())
	tampered := with(newer, content{annotations: "own/record="})
	record := inherit.ValidRecord(older)
	Expect(record).NotTo(BeEmpty())
	Expect(inherit.Restored(tampered, record)).To(Equal(tampered))
	Expect(inherit.Restored(newer, record)).To(Equal(newer))
	Expect(inherit.Restored(content{}.node(), record)).To(Equal(content{}.node()))
}

// TestClaimsAtRegistration: a Node that nobody but its kubelet has written gets its Initialize taints, whatever it claims.
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
			node := synced(t, m)
			node.New, node.Taints = true, nil
			return node
		}, false},
		{"it has run for a while", func() inherit.NodeState { return inherit.NodeState{Annotations: annotations("capi/taints=")} }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := withProblems(inherit.Policy{}.Node(inherit.SourceOfMachine(m), tc.node(), inherit.Privileged))
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(taint.Find(got.Taints, taint.IDOf(onNode("boot:NoSchedule")[0])) >= 0).To(Equal(tc.want))
		})
	}
}

// NodeRestriction would refuse the label in a kubelet's create, and nobody declares it.
func TestTheRecordsLabel(t *testing.T) {
	Expect := NewWithT(t).Expect
	m := content{labels: inherit.RecordLabel + "=forged," + role + "="}.machine()
	created, err := withProblems(everyLabel().Node(inherit.SourceOfMachine(m), content{}.node(), inherit.Kubelet))
	Expect(err).NotTo(HaveOccurred())
	Expect(created.Labels).To(BeEmpty())
	Expect(created.Annotations).NotTo(HaveKey(inherit.RecordAnnotation))
	node := synced(t, m)
	Expect(node.Labels[inherit.RecordLabel]).NotTo(Equal("forged"))
	Expect(inherit.RecordOf(node).Labels).To(Equal([]string{role}))
	Expect(inherit.Brought(content{}.node(), node)).To(HaveLen(1), "nobody is told of it")
}

// Whatever a kubelet may write, nothing goes that is not in the record.
func TestNothingGoesThatIsNotRecorded(t *testing.T) {
	Expect := NewWithT(t).Expect
	random := rand.New(rand.NewPCG(12, 6))
	keys := []string{quarantine, role, "kubernetes.io/x", "team", "node.cluster.x-k8s.io/a", "topology.kubernetes.io/zone"}
	taints := []string{"quarantine:NoExecute", "gpu=1:NoSchedule", "gpu=2:NoSchedule", "node-role.kubernetes.io/x:NoSchedule"}
	pick := func(from []string, separator string) string {
		var picked []string
		for _, one := range from {
			if random.IntN(2) == 0 {
				picked = append(picked, one)
			}
		}
		return strings.Join(picked, separator)
	}
	for range 5000 {
		declared := func() content { return content{labels: pick(keys, "=,"), taints: pick(taints, ",")} }
		was, now := synced(t, declared().machine()), declared().machine()
		node := with(was, content{labels: pick(keys, "=,")})
		node.Taints = append(taint.Remove(node.Taints, taint.ID{Key: "quarantine", Effect: "NoExecute"}), onNode("quarantine:NoExecute")...)
		for _, name := range inherit.TrackingAnnotations {
			if random.IntN(2) == 0 {
				node.Annotations[name] = pick(keys, ",") + pick([]string{";", ","}, "") + pick(taints, ",")
			}
		}
		record := inherit.RecordOf(node)
		got, err := withProblems(everyLabel().Node(inherit.SourceOfMachine(now), node, inherit.Privileged))
		Expect(err).NotTo(HaveOccurred())
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
	}
}
