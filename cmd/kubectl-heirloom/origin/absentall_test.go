// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Without a key, nothing is listed that no one would miss: what tells about the object that carries it, and labels of controllers.
func TestAbsencesOfAllKeys(t *testing.T) {
	Expect := NewWithT(t).Expect
	w := newTopology()
	w.throughout("node.cluster.x-k8s.io/a", "")
	w.throughout("team", "node")
	w.md.Annotations = map[string]string{"cluster.x-k8s.io/own": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
	w.ms.Spec.Template.Labels[clusterv1.MachineDeploymentUniqueLabel], w.m.Labels[clusterv1.MachineDeploymentUniqueLabel] = "x", "x"
	w.m.Annotations = map[string]string{"controlplane.cluster.x-k8s.io/remediation-for": "x", "taints.heirloom.dev/always": "gpu:NoSchedule"}
	w.m.Spec.Taints, w.node.Spec.Taints = taintsIn(t, "taint gpu:NoSchedule"), []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	w.md.Labels["node.cluster.x-k8s.io/a"], w.md.Labels["team"] = "1", "1"
	w.ms.Labels["node.cluster.x-k8s.io/a"], w.ms.Labels["team"] = "1", "1"
	for _, object := range []string{"md", "ms", "m"} {
		Expect(w.missing(t, object, "")).To(BeEmpty(), object)
	}
	found := w.missing(t, "node", "")
	Expect(found).To(HaveLen(1), fmt.Sprint(found))
	Expect(found[0]).To(And(HaveField("Kind", Label), HaveField("Key", "team"), HaveField("Value", "1"), HaveField("Reason", "OutsideSyncedDomains"),
		HaveField("From", "Cluster default/c spec.topology.workers.machineDeployments[md].metadata.labels")))

	w.m.Annotations, w.m.Spec.Taints = nil, nil
	w.node.Spec.Taints = nil
	w.mp.Spec.Template.Labels = map[string]string{"b": "1"}
	Expect(w.missing(t, "mp", "")).To(BeEmpty(), "what the object declares itself is there")
}

func taintsIn(t *testing.T, s string) []clusterv1.MachineTaint {
	t.Helper()
	_, _, taints := read(t, s)
	return taints
}

func TestListedIn(t *testing.T) {
	Expect := NewWithT(t).Expect
	node := inherit.Record{Labels: []string{"node-role.kubernetes.io/gpu"}}.Recorded(inherit.NodeState{Annotations: map[string]string{
		clusterv1.LabelsFromMachineAnnotation: "a, node-role.kubernetes.io/gpu", inherit.LabelsFromMachineAnnotation: "b",
		clusterv1.TaintsFromMachineAnnotation: "gpu:NoSchedule", inherit.TaintsFromMachineAnnotation: "dedicated=ml:NoExecute",
	}})
	listed := listedIn(node)
	Expect(listed(inherit.Entry{What: "label", Name: "a"})).To(Equal([]string{clusterv1.LabelsFromMachineAnnotation}))
	Expect(listed(inherit.Entry{What: "label", Name: "b"})).To(Equal([]string{inherit.LabelsFromMachineAnnotation}))
	Expect(listed(inherit.Entry{What: "label", Name: "node-role.kubernetes.io/gpu"})).
		To(Equal([]string{clusterv1.LabelsFromMachineAnnotation, inherit.RecordAnnotation}))
	Expect(listed(inherit.Entry{What: "taint", Name: "gpu:NoSchedule"})).To(Equal([]string{clusterv1.TaintsFromMachineAnnotation}))
	Expect(listed(inherit.Entry{What: "taint", Name: "dedicated:NoExecute"})).To(Equal([]string{inherit.TaintsFromMachineAnnotation}))
	Expect(listed(inherit.Entry{What: "annotation", Name: "a"})).To(BeEmpty())
}

func TestWhatATopologyOverrides(t *testing.T) {
	Expect := NewWithT(t).Expect
	part := func(text string) (p inherit.Part) {
		p.Labels, p.Annotations, _ = read(t, text)
		return p
	}
	s := inherit.Section{
		Class:    part("label same=1 | label other=1 | label alone=1 | annotation same=1 | annotation other=1 | annotation alone=1"),
		Topology: part("label same=1 | label other=2 | annotation same=1 | annotation other=2"),
	}
	s.Class.Taints, s.Class.Fields.Seconds[inherit.NodeDrainTimeout] = taintsIn(t, "taint both:NoSchedule | taint old:NoSchedule"), ptr.To(int32(1))
	s.Class.Fields.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "Both"}, {ConditionType: "Old"}}
	over := Overridden(s)
	Expect(over.Taints).To(BeEmpty(), "the topology says nothing about taints")
	Expect(over.Fields.ReadinessGates).To(BeEmpty())

	s.Topology.Taints, s.Topology.Fields.Seconds[inherit.NodeDrainTimeout] = taintsIn(t, "taint both:NoSchedule"), ptr.To(int32(2))
	s.Topology.Fields.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "Both"}}
	over = Overridden(s)
	Expect(over.Labels).To(Equal(map[string]string{"other": "1"}))
	Expect(over.Annotations).To(Equal(map[string]string{"other": "1"}))
	Expect(over.Taints).To(Equal(taintsIn(t, "taint old:NoSchedule")))
	Expect(over.Fields.ReadinessGates).To(ConsistOf(HaveField("ConditionType", "Old")))
	Expect(over.Fields.Seconds[inherit.NodeDrainTimeout]).To(HaveValue(Equal(int32(1))))
}

func TestPathOfAnEntry(t *testing.T) {
	ref := func(kind string) inherit.Ref {
		return inherit.Ref{Kind: kind, Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}}}
	}
	declares := func(kind string, keys ...string) inherit.Declaration {
		d := inherit.Declaration{Ref: ref(kind), Content: inherit.Content{Labels: map[string]string{}}}
		for _, key := range keys {
			d.Labels[key] = "1"
		}
		return d
	}
	sources := inherit.Sources{All: []inherit.Declaration{
		declares("Cluster", "topology"), declares("ClusterClass", "class"), declares("MachineDeployment", "topology", "class", "md"),
		declares("MachineSet"), declares("Machine", "own"),
	}}
	for key, want := range map[string][]string{
		"topology": {"Cluster ns/x", "MachineDeployment ns/x", "MachineSet ns/x"},
		"class":    {"ClusterClass ns/x", "MachineDeployment ns/x", "MachineSet ns/x"},
		"md":       {"MachineDeployment ns/x", "MachineSet ns/x"},
		"own":      nil,
	} {
		var got []string
		for _, step := range pathOf(sources, inherit.Entry{What: "label", Name: key}, ref("Machine")) {
			got = append(got, step.String())
		}
		NewWithT(t).Expect(got).To(Equal(want), key)
	}
	NewWithT(t).Expect(pathOf(inherit.Sources{}, inherit.Entry{}, ref("Machine"))).To(BeEmpty())
}
