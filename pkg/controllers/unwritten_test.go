// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// A Node that has just registered is left to Cluster API for a second or more, so nothing on it records its taints yet. Meanwhile, its
// Machine may lose them.
func TestARecordThatIsNotWrittenYetCounts(t *testing.T) {
	for _, tc := range []struct {
		name        string
		propagation inherit.TaintPropagation
		meanwhile   func(l *loop, m *clusterv1.Machine, n *corev1.Node)
		waits       time.Duration
		want        string
		recorded    string
	}{
		{"the Machine loses its taint", inherit.PropagationDisabled, func(l *loop, m *clusterv1.Machine, _ *corev1.Node) {
			l.change(m, func() { m.Spec.Taints = m.Spec.Taints[1:] })
		}, 0, "boot:NoSchedule,node.cluster.x-k8s.io/uninitialized:NoSchedule", ""},
		{"the Machine loses a taint that Cluster API is about to take away", inherit.PropagationEnabled, func(l *loop, m *clusterv1.Machine, _ *corev1.Node) {
			l.change(m, func() { m.Spec.Taints = m.Spec.Taints[1:] })
		}, 1800 * time.Millisecond, "boot:NoSchedule,node.cluster.x-k8s.io/uninitialized:NoSchedule", ""},
		{"the Machine loses its taint, and admission records what is left", inherit.PropagationDisabled, func(l *loop, m *clusterv1.Machine, n *corev1.Node) {
			l.change(m, func() { m.Spec.Taints = m.Spec.Taints[1:] })
			l.change(n, func() {
				recorded := inherit.Record{}.Recorded(inherit.OfNode(n))
				n.Labels, n.Annotations = recorded.Labels, recorded.Annotations
			})
		}, 0, "boot:NoSchedule,node.cluster.x-k8s.io/uninitialized:NoSchedule", ""},
		{"the Node is initialized", inherit.PropagationDisabled, func(l *loop, _ *clusterv1.Machine, n *corev1.Node) {
			l.change(n, func() { n.Spec.Taints = n.Spec.Taints[:1] })
		}, 1800 * time.Millisecond, "gpu:NoSchedule", "gpu:NoSchedule"},
		{"another Node has its name", inherit.PropagationDisabled, func(l *loop, m *clusterv1.Machine, n *corev1.Node) {
			l.Expect(l.server.Delete(l.t.Context(), n)).To(Succeed())
			l.Expect(l.seeOwn("m")).To(Succeed())
			l.change(m, func() { m.Spec.Taints = nil })
			n.ResourceVersion, n.Annotations = "", nil
			l.Expect(l.server.Create(l.t.Context(), n)).To(Succeed())
		}, 2 * time.Second, "boot:NoSchedule,gpu:NoSchedule,node.cluster.x-k8s.io/uninitialized:NoSchedule", ""},
		{"another Node has its name, and nobody has told that the first is gone", inherit.PropagationDisabled, func(l *loop, m *clusterv1.Machine, n *corev1.Node) {
			l.Expect(l.server.Delete(l.t.Context(), n)).To(Succeed())
			l.change(m, func() { m.Spec.Taints = nil })
			n.UID, n.ResourceVersion, n.Annotations = "another", "", nil
			l.Expect(l.server.Create(l.t.Context(), n)).To(Succeed())
		}, 1800 * time.Millisecond, "boot:NoSchedule,gpu:NoSchedule,node.cluster.x-k8s.io/uninitialized:NoSchedule", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, n := machine("m", "MachineSet/ms"), node("m")
				m.Labels[pool] = "a"
				m.Spec.Taints = []clusterv1.MachineTaint{
					{Key: "gpu", Effect: "NoSchedule", Propagation: clusterv1.MachineTaintPropagationAlways},
					{Key: "boot", Effect: "NoSchedule", Propagation: clusterv1.MachineTaintPropagationOnInitialization},
				}
				registered := []corev1.Taint{{Key: "gpu", Effect: "NoSchedule"}, {Key: "boot", Effect: "NoSchedule"}, clusterv1.NodeUninitializedTaint}
				n.CreationTimestamp, n.Spec.Taints = metav1.Now(), registered
				n.Annotations = map[string]string{clusterv1.TaintsFromMachineAnnotation: "gpu:NoSchedule"}
				l := newLoop(t, theCluster(), machineSet(), m, n)
				l.policy.ClusterAPITaints = tc.propagation
				look := func() time.Duration {
					result, err := l.seeNode(client.ObjectKey{}, "m")
					l.Expect(err).NotTo(HaveOccurred())
					return result.RequeueAfter
				}
				l.Expect(look()).To(Equal(2 * time.Second))
				<-time.After(200 * time.Millisecond)
				tc.meanwhile(l, m, n)
				l.Expect(look()).To(Equal(tc.waits))
				<-time.After(tc.waits)
				l.Expect(look()).To(BeZero())
				l.stored(n)
				l.Expect(taint.FormatList(n.Spec.Taints)).To(Equal(tc.want))
				l.Expect(taint.FormatList(inherit.RecordOf(inherit.OfNode(n)).Taints)).To(Equal(tc.recorded))
			})
		})
	}
}
