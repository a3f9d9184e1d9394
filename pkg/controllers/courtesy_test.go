// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// recordGPU records that taint gpu has come from the Machine.
func recordGPU(n *corev1.Node) {
	recorded := inherit.Record{Taints: []corev1.Taint{{Key: "gpu", Effect: "NoSchedule"}}}.Recorded(inherit.OfNode(n))
	n.Labels, n.Annotations = recorded.Labels, recorded.Annotations
}

// What Cluster API is about to write on a Node is left to it for two seconds; everything else is written at once.
func TestClusterAPIMayWriteANodeFirst(t *testing.T) {
	gpu := []clusterv1.MachineTaint{{Key: "gpu", Effect: "NoSchedule", Propagation: "Always"}}
	onlyGPU := []corev1.Taint{{Key: "gpu", Effect: "NoSchedule"}}
	listed := map[string]string{clusterv1.LabelsFromMachineAnnotation: pool, clusterv1.TaintsFromMachineAnnotation: ""}
	for _, tc := range []struct {
		name  string
		ms    *clusterv1.MachineSet
		has   func(m *clusterv1.Machine, n *corev1.Node)
		waits bool
	}{
		{"a label that the Machine has", machineSet(), func(m *clusterv1.Machine, _ *corev1.Node) { m.Labels[pool] = "a" }, true},
		{"a label that the Machine has lost", machineSet(), func(_ *clusterv1.Machine, n *corev1.Node) {
			n.Labels, n.Annotations = pairs(pool+"=a"), listed
		}, true},
		{"a Node that Cluster API has yet to write", machineSet(), func(_ *clusterv1.Machine, n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{clusterv1.NodeUninitializedTaint}
		}, true},
		{"a Node that admission keeps free of workload until then", machineSet(), func(m *clusterv1.Machine, n *corev1.Node) {
			m.Labels["node-role.kubernetes.io/worker"] = ""
			n.Spec.Taints = []corev1.Taint{clusterv1.NodeUninitializedTaint}
			n.Annotations = map[string]string{inherit.UninitializedAnnotation: "added"}
		}, true},
		{"a Node without the Machine's providerID", machineSet(), func(m *clusterv1.Machine, n *corev1.Node) {
			m.Labels[pool], m.Spec.ProviderID, m.Status.NodeRef.Name = "a", "", n.Name
		}, false},
		{"records alone", machineSet(), func(*clusterv1.Machine, *corev1.Node) {}, false},
		{"a label that the Machine does not have yet", machineSet(pool + "=a"), func(*clusterv1.Machine, *corev1.Node) {}, false},
		{"a label that only Heirloom's list has", machineSet(), func(_ *clusterv1.Machine, n *corev1.Node) {
			n.Labels, n.Annotations = pairs(pool+"=a"), map[string]string{inherit.LabelsFromMachineAnnotation: pool}
		}, false},
		{"a label of an additional regular expression", machineSet(), func(m *clusterv1.Machine, _ *corev1.Node) { m.Labels["team"] = "ml" }, false},
		{"a Node whose taints no record confirms", machineSet(), func(m *clusterv1.Machine, n *corev1.Node) {
			m.Labels[pool], m.Spec.Taints = "a", gpu
			n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: "NoSchedule"}, clusterv1.NodeUninitializedTaint}
			n.Annotations = map[string]string{clusterv1.TaintsFromMachineAnnotation: "gpu:NoSchedule"}
		}, true},
		{"a taint that the Machine has lost and Cluster API lists", machineSet(), func(_ *clusterv1.Machine, n *corev1.Node) {
			n.Spec.Taints = onlyGPU
			n.Annotations = map[string]string{clusterv1.TaintsFromMachineAnnotation: "gpu:NoSchedule"}
			recordGPU(n)
		}, true},
		{"a taint that the Machine has lost and only Heirloom lists", machineSet(), func(_ *clusterv1.Machine, n *corev1.Node) {
			n.Spec.Taints = onlyGPU
			n.Annotations = map[string]string{clusterv1.TaintsFromMachineAnnotation: "", inherit.TaintsFromMachineAnnotation: "gpu:NoSchedule"}
			recordGPU(n)
		}, false},
		{"a taint", machineSet(), func(m *clusterv1.Machine, n *corev1.Node) {
			m.Labels[pool], m.Spec.Taints, n.Spec.Taints = "a", gpu, []corev1.Taint{clusterv1.NodeUninitializedTaint}
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, n := machine("m", "MachineSet/ms"), node("m")
				tc.has(m, n)
				l := newLoop(t, theCluster(), tc.ms, m, n)
				l.policy.ClusterAPITaints = inherit.PropagationEnabled
				l.policy.AdditionalLabels = []*regexp.Regexp{regexp.MustCompile("^team$")}
				look := func() time.Duration {
					result, err := l.seeNode(client.ObjectKey{}, "m")
					l.Expect(err).NotTo(HaveOccurred())
					return result.RequeueAfter
				}
				why := "ahead"
				if tc.waits {
					why = "late"
					l.Expect(look()).To(Equal(2 * time.Second))
					<-time.After(300 * time.Millisecond)
					l.Expect(look()).To(Equal(1700 * time.Millisecond))
					l.wrote()
					<-time.After(1700 * time.Millisecond)
				}
				l.Expect(look()).To(BeZero())
				l.Expect(l.writes.take()).To(HaveLen(1))
				l.counted(`resync_writes_total{kind="Node",reason="` + why + `",result="applied"} 1`)
			})
		})
	}
}

// A Node may wait for Cluster API and for the turn of a taint that evicts Pods, each for as long as it takes.
func TestANodeWaitsForClusterAPIAndForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := evictions(t, "MachineSet/ms", 2, machineDeployment(), machineSet())
		for _, name := range []string{"n0", "n1"} {
			n := node(name)
			l.change(n, func() {
				n.Annotations = map[string]string{clusterv1.TaintsFromMachineAnnotation: ""}
				n.Labels = map[string]string{inherit.RecordLabel: "x"}
			}) // it is not new
			for range 2 {
				l.taintsOf(name)
				<-time.After(2 * time.Second)
			}
		}
		m := machine("n1", "MachineSet/ms")
		l.change(m, func() { m.Labels[pool] = "b" })
		l.writes.take()
		for _, waits := range []time.Duration{2 * time.Second, time.Second} {
			taints, again := l.taintsOf("n1")
			l.Expect(taints).To(Equal(withoutDrain))
			l.Expect(again).To(Equal(waits))
			<-time.After(time.Second)
		}
		l.wrote()
		l.taintsOf("n1")
		l.Expect(l.writes.take()).To(HaveLen(1))
		l.Expect(l.stored(node("n1")).GetLabels()).To(HaveKeyWithValue(pool, "b"))
	})
}

// A label that a Node gets before its Machine costs one write of the Node when it is added and one when it is removed, and none when the
// Machine gets it.
func TestALabelCostsOneWriteOfTheNode(t *testing.T) {
	l := newLoop(t, theCluster(), machineSet(pool+"=a"), machine("m", "MachineSet/ms"), node("m"))
	labels := func() map[string]string {
		_, err := l.seeNode(client.ObjectKey{}, "m")
		l.Expect(err).NotTo(HaveOccurred())
		return l.stored(node("m")).GetLabels()
	}
	l.Expect(labels()).To(HaveKeyWithValue(pool, "a"))
	l.Expect(l.writes.take()).To(HaveLen(1))

	m, ms := machine("m", "MachineSet/ms"), machineSet(pool+"=a")
	l.change(m, func() { m.Labels[pool] = "a" })
	labels()
	l.wrote()

	l.change(ms, func() { ms.Spec.Template.Labels = nil })
	l.Expect(labels()).To(HaveKey(pool), "the Machine still has it")
	l.wrote()
	l.change(m, func() { delete(m.Labels, pool) })
	l.Expect(labels()).NotTo(HaveKey(pool))
	l.Expect(l.writes.take()).To(HaveLen(1))
}
