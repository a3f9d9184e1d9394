// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// fakes is the number of Nodes that a hostile workload cluster makes up.
const fakes = 2000

// fakePool returns a MachinePool of Cluster d that declares these taints, and the Cluster.
func fakePool(taints string) []client.Object {
	mp := machinePool()
	mp.Spec.ClusterName, mp.Labels[clusterv1.ClusterNameLabel] = "d", "d"
	mp.Spec.Template.Annotations = map[string]string{taint.AlwaysAnnotation: taints}
	return []client.Object{mp, &clusterv1.Cluster{ObjectMeta: named("d")}}
}

// makesUp connects Cluster d with made-up Nodes that claim to be of fakePool, and reconciles all of them.
func (l *loop) makesUp() {
	l.t.Helper()
	var made []client.Object
	for i := range fakes {
		n := node(fmt.Sprint("fake-", i))
		n.Spec.ProviderID = "id-pooled"
		made = append(made, n)
	}
	server := l.connect("d", made...)
	for i, n := range made {
		if i%100 == 99 { // the live decisions of a Cluster are limited
			<-time.After(time.Second)
		}
		l.Expect(l.lookAt("d", n.GetName())).Error().NotTo(HaveOccurred())
	}
	tainted, list := 0, &corev1.NodeList{}
	l.Expect(server.List(l.t.Context(), list)).To(Succeed())
	for _, n := range list.Items {
		tainted += len(n.Spec.Taints)
	}
	l.Expect(tainted).NotTo(BeZero(), "the Nodes inherit")
}

// Nodes that wait for a NoExecute taint do not hold up the Nodes of another Cluster, at any number.
func TestFakeNodesTakeNobodysTurn(t *testing.T) {
	inUse(t, func(t *testing.T) {
		l := evictions(t, 2, append(fakePool("drain:NoExecute"), machineDeployment(), machineSet())...)
		l.makesUp()
		l.counted(fmt.Sprint("no_execute_waiting_nodes ", fakes-1))
		taints, again := l.after("n0")
		l.Expect([]any{taints, again}).To(Equal([]any{all, time.Duration(0)}))
		taints, again = l.after("n1")
		l.Expect([]any{taints, again}).To(Equal([]any{withoutDrain, time.Minute}), "n1 waits only for n0")
		<-time.After(again)
		l.Expect(l.drained("n1")).To(Equal(1))
	})
}

// The records of a Cluster's Nodes do not push out the records of another Cluster: a kubelet that removes its record keeps no entries.
func TestFakeNodesPushNoRecordOut(t *testing.T) {
	inUse(t, func(t *testing.T) {
		m, n := nodeMachine("m"), node("m")
		l := newLoop(t, append(fakePool("gpu:NoSchedule"), theCluster(), machineSet(), m, n)...)
		l.Expect(l.seeNode("m")).To(Succeed())
		l.makesUp()
		l.change(n, func() { delete(n.Annotations, inherit.RecordAnnotation) })
		l.change(m, loseAll(m))
		l.Expect(l.seeNode("m")).To(Succeed())
		l.Expect(l.taintsOf("m")).To(BeEmpty())
	})
}
