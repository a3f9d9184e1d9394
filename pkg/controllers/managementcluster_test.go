// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/broadcast"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload"
)

// claims are what a detector has found out.
type claims struct {
	broadcast.Broadcaster
	all []types.NamespacedName
}

func (c *claims) Claims() []types.NamespacedName { return c.all }

func (c *claims) Cluster() types.NamespacedName {
	if len(c.all) == 1 {
		return c.all[0]
	}
	return types.NamespacedName{}
}

// Until it is known which Cluster is the management cluster itself, no Node of it inherits. Once it is, that is told, once.
func TestNodesWaitUntilTheirClusterIsFound(t *testing.T) {
	l := newLoop(t, theCluster(), machineSet(), nodeMachine("m"), node("m"))
	found := &claims{}
	l.ManagementCluster, l.Chain.ManagementCluster = found, found.Cluster
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.wrote()
	l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	l.told()

	found.all = []types.NamespacedName{key("c")}
	for range 2 {
		l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	}
	l.told("Normal ManagementClusterFound Cluster/c: ")
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.wrote("patches Node /m@999 " + inheritedByNode)

	found.all = append(found.all, key("d"))
	for range 2 {
		l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	}
	l.told("Warning ManagementClusterAmbiguous Cluster/c: ")
}

// All Nodes of the management cluster are looked at when its Cluster is found.
func TestNodesAreLookedAtOnceTheirClusterIsFound(t *testing.T) {
	l := newLoop(t, theCluster(), machineSet(), nodeMachine("m"), node("m"))
	found := &claims{}
	l.ManagementCluster, l.Chain.ManagementCluster = found, found.Cluster
	l.Admission = &workload.Admission{Changes: l.admissions}
	l.running()
	found.all = []types.NamespacedName{key("c")}
	l.start()
	found.Publish()
	l.eventually(func() map[string]string { return l.stored(node("m")).GetLabels() }).Should(HaveKeyWithValue(pool, "a"))
	l.eventually(l.events.take).Should(ContainElement(HavePrefix("Normal ManagementClusterFound Cluster/c: ")))
}

// A kubelet cannot opt its Node out. Whom somebody else has opted out can be seen.
func TestNodesThatAreLeftOutAreCounted(t *testing.T) {
	m, n, cluster := nodeMachine("m"), node("m"), theCluster()
	n.Labels = pairs(inherit.IgnoreLabel)
	l := newLoop(t, cluster, machineSet(), m, n)
	const count = `ignored_nodes{cluster_name="",cluster_namespace=""} 1`
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.Expect(l.stored(n).GetLabels()).To(HaveKeyWithValue(pool, "a"), "the Node's own label means nothing")
	l.Expect(samplesOf(t, l.registry)).NotTo(ContainElement(count))

	l.change(m, func() { m.Labels[inherit.IgnoreLabel] = "" })
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.counted(count)
	l.change(m, func() { delete(m.Labels, inherit.IgnoreLabel) })
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.Expect(samplesOf(t, l.registry)).NotTo(ContainElement(count))
	l.change(cluster, func() { cluster.Labels = pairs(inherit.IgnoreLabel) })
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.counted(count)
	l.Expect(l.server.Delete(t.Context(), n)).To(Succeed())
	l.Expect(l.seeOwn("m")).To(Succeed())
	l.Expect(samplesOf(t, l.registry)).NotTo(ContainElement(count), "it is gone")
}

// What a borrowed address has brought goes when the Machine turns out to be another Node.
func TestWhatABorrowedAddressBroughtGoes(t *testing.T) {
	m, n := nodeMachine("m"), node("thief")
	m.Labels[worker], m.Spec.ProviderID = "", "id-m"
	n.Spec.ProviderID = ""
	m.Status.Addresses = []clusterv1.MachineAddress{{Type: "InternalIP", Address: "10.0.0.1"}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
	l := newLoop(t, theCluster(), machineSet(), m, n)
	l.Expect(l.seeOwn("thief")).To(Succeed())
	l.stored(n)
	l.Expect(n.Labels).To(HaveKeyWithValue(pool, "a"))
	l.Expect(n.Labels).NotTo(HaveKey(worker), "no privileges")
	l.Expect(n.Spec.Taints).To(HaveLen(1))

	l.change(m, func() { m.Status.NodeRef.Name = "m" })
	l.Expect(l.seeOwn("thief")).To(Succeed())
	l.stored(n)
	l.Expect(n.Labels).NotTo(HaveKey(pool))
	l.Expect(n.Spec.Taints).To(BeEmpty())
	l.Expect(n.Annotations).NotTo(HaveKey(inherit.MatchedByAddressAnnotation))
	l.writes.take()
	l.Expect(l.seeOwn("thief")).To(Succeed())
	l.wrote()
}
