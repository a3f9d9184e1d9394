// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

const drains = "drain:NoExecute"

// later runs a test with a clock of its own, at a time when the Nodes have long been in use.
func later(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		<-time.After(time.Until(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)))
		run(t)
	})
}

// rename gives an object and its Cluster other names, and makes it the child of another owner.
func rename[T client.Object](object T, name, cluster, owner string) T {
	object.SetName(name)
	object.SetUID(types.UID(name))
	labels := object.GetLabels()
	labels[clusterv1.ClusterNameLabel] = cluster
	object.SetLabels(labels)
	if refs := object.GetOwnerReferences(); len(refs) > 0 {
		refs[0].Name, refs[0].UID = owner, types.UID(owner)
		object.SetOwnerReferences(refs)
	}
	return object
}

// family are a MachineDeployment of a Cluster's topology with its MachineSet, Machines and their Nodes. They are named after
// the MachineDeployment; Nodes have a number besides.
func family(cluster, name string, nodes int) (objects []client.Object) {
	md := rename(managed(machineDeployment()), name, cluster, "")
	ms := rename(machineSet(), name, cluster, name)
	md.Spec.ClusterName, ms.Spec.ClusterName = cluster, cluster
	objects = append(objects, md, ms)
	for i := range nodes {
		id := fmt.Sprint(name, "-", i)
		m := rename(machine(id, "MachineSet/"+name), id, cluster, name)
		m.Spec.ClusterName, m.Status.NodeRef.Name = cluster, id
		objects = append(objects, m, node(id))
	}
	return objects
}

// clusterNamed is a Cluster of ClusterClass class.
func clusterNamed(name string) *clusterv1.Cluster {
	cluster := managedCluster()
	cluster.Name, cluster.UID = name, types.UID(name)
	return cluster
}

// declaring is ClusterClass class, which declares annotations for all its workers.
func declaring(annotations map[string]string) *clusterv1.ClusterClass {
	class := clusterClass()
	class.Spec.Workers.MachineDeployments[0].Metadata.Annotations = annotations
	return class
}

func (l *loop) drained(nodes []string) (drained int) {
	l.t.Helper()
	for _, name := range nodes {
		cluster, _, _ := strings.Cut(name, "-")
		l.own.Store(ptr.To(key(cluster)))
		if taints, _ := l.taintsOf(name); taints == drains {
			drained++
		}
	}
	return drained
}

// What a ClusterClass declares reaches one Node at a time of all MachineDeployments of all its Clusters, and not one of each:
// those that have one Node would all be empty at once.
func TestAClassEvictsAtOnePaceInAllClusters(t *testing.T) {
	later(t, func(t *testing.T) {
		const clusters, sets = 2, 4
		objects, nodes := []client.Object{declaring(map[string]string{taint.AlwaysAnnotation: drains})}, []string{}
		for c := range clusters {
			cluster := fmt.Sprint("c", c)
			objects = append(objects, clusterNamed(cluster))
			for i := range sets {
				name := fmt.Sprint(cluster, "-md", i)
				objects, nodes = append(objects, family(cluster, name, 1)...), append(nodes, name+"-0")
			}
		}
		l := newLoop(t, objects...)
		l.NoExecuteRate = 1
		for minute := range len(nodes) {
			l.Expect(l.drained(nodes)).To(Equal(minute+1), "after %d minutes", minute)
			l.Expect(l.drained(nodes)).To(Equal(minute+1), "however often they ask")
			<-time.After(time.Minute)
		}
		l.counted("no_execute_waiting_nodes 0")
		told := l.events.take()
		l.Expect(told[0]).To(ContainSubstring("NoExecuteTaintsRollingOut ClusterClass/class: "))
		l.Expect(told[0]).To(ContainSubstring("no more for now in ClusterClass ns/class"))
		l.Expect(told[len(told)-1]).To(HavePrefix("Normal NoExecuteTaintsRolledOut ClusterClass/class: Taints [drain:NoExecute] are on all 8 Nodes"))
	})
}

// An instance with --namespace may not record Events about a ClusterClass of another namespace.
func TestASetStandsForAClassOfAnotherNamespace(t *testing.T) {
	for namespace, about := range map[string]string{"": "ClusterClass/class", "ns": "MachineDeployment/c0-md", "classes": "ClusterClass/class"} {
		t.Run("--namespace="+namespace, func(t *testing.T) {
			class, cluster := declaring(map[string]string{taint.AlwaysAnnotation: drains}), clusterNamed("c0")
			class.SetNamespace("classes")
			cluster.Spec.Topology.ClassRef.Namespace = class.GetNamespace()
			l := newLoop(t, append(family("c0", "c0-md", 2), class, cluster)...)
			l.NoExecuteRate, l.Namespace = 1, namespace
			l.Expect(l.drained([]string{"c0-md-0", "c0-md-1"})).To(Equal(1))
			l.told("Normal NoExecuteTaintsRollingOut " + about + ": ")
		})
	}
}

// What a Cluster's topology declares is the Cluster's own business, and so is what one of its MachineDeployments declares.
func TestClustersHaveAPaceOfTheirOwn(t *testing.T) {
	for name, declare := range map[string]func(cluster *clusterv1.Cluster, md *clusterv1.MachineDeployment){
		"Cluster/c0": func(cluster *clusterv1.Cluster, _ *clusterv1.MachineDeployment) {
			cluster.Spec.Topology.Workers.MachineDeployments[0].Metadata.Annotations = map[string]string{taint.AlwaysAnnotation: drains}
		},
		"MachineDeployment/c0-md0": func(_ *clusterv1.Cluster, md *clusterv1.MachineDeployment) {
			md.Spec.Template.Annotations = map[string]string{taint.AlwaysAnnotation: drains}
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{declaring(nil)}
			for _, c := range []string{"c0", "c1"} {
				cluster := clusterNamed(c)
				for i := range 2 {
					members := family(c, fmt.Sprint(c, "-md", i), 2)
					declare(cluster, members[0].(*clusterv1.MachineDeployment))
					objects = append(objects, members...)
				}
				objects = append(objects, cluster)
			}
			l := newLoop(t, objects...)
			l.NoExecuteRate = 1
			l.Expect(l.drained([]string{"c0-md0-0", "c0-md0-1"})).To(Equal(1))
			l.told("Normal NoExecuteTaintsRollingOut " + name + ": ")
			l.Expect(l.drained([]string{"c0-md1-0", "c0-md1-1"})).To(BeZero())
			l.Expect(l.drained([]string{"c1-md0-0", "c1-md0-1", "c1-md1-0"})).To(Equal(1))
		})
	}
}

// However high the rate is, a set keeps nine tenths of its Nodes for a minute.
func TestASetGivesATenthOfItsNodesAMinute(t *testing.T) {
	later(t, func(t *testing.T) {
		objects, nodes := []client.Object{declaring(map[string]string{taint.AlwaysAnnotation: drains}), clusterNamed("c")}, []string{}
		for name, size := range map[string]int{"c-large": 11, "c-small": 2} {
			objects = append(objects, family("c", name, size)...)
			for i := range size {
				nodes = append(nodes, fmt.Sprint(name, "-", i))
			}
		}
		l := newLoop(t, objects...)
		l.NoExecuteRate = 6000
		drainedAfter := func(passes time.Duration) int {
			for ; passes > 0; passes -= 5 * time.Second {
				<-time.After(5 * time.Second)
				l.drained(nodes)
			}
			return l.drained(nodes)
		}
		l.Expect(drainedAfter(10*time.Second)).To(Equal(2), "one of each set")
		l.Expect(drainedAfter(35*time.Second)).To(Equal(3), "half a minute later one more of the large one, which has a share of two")
		l.Expect(drainedAfter(40*time.Second)).To(Equal(5), "and after a minute one more of each")
	})
}

// A control plane has what it declares from the ClusterClass's template, unless the Cluster's topology declares it.
func TestAControlPlanesTaintsComeFromItsClass(t *testing.T) {
	for source, byTopology := range map[string]map[string]string{"ClusterClass/class": nil, "Cluster/c": {taint.AlwaysAnnotation: drains}} {
		t.Run(source, func(t *testing.T) {
			cluster := managedCluster()
			cluster.Spec.Topology.ControlPlane.Metadata.Annotations = byTopology
			l := newLoop(t, cluster, clusterClass(), managed(controlPlane()), evicting("n0", "FakeControlPlane/cp"), evicting("n1", "FakeControlPlane/cp"), node("n0"), node("n1"))
			l.NoExecuteRate = 1
			l.taintsOf("n0")
			l.taintsOf("n1")
			l.told("Normal NoExecuteTaintsRollingOut " + source + ": ")
		})
	}
}

// Heirloom comes to a fleet in use: its Nodes get Initialize taints that evict Pods one after the other, and then once.
func TestInitializeTaintsThatEvictReachNodesInUseOneAfterTheOther(t *testing.T) {
	later(t, func(t *testing.T) {
		objects := []client.Object{
			clusterNamed("c"), declaring(map[string]string{taint.InitializeAnnotation: drains, taint.AlwaysAnnotation: "gpu:NoSchedule"}),
		}
		l := newLoop(t, append(objects, family("c", "md", 2)...)...)
		l.NoExecuteRate = 1
		fresh := node("md-0")
		l.Expect(first(l.taintsOf("md-0"))).To(Equal("drain:NoExecute,gpu:NoSchedule"))
		l.Expect(first(l.taintsOf("md-1"))).To(Equal("gpu:NoSchedule"))
		waiting := node("md-1")
		l.stored(waiting)
		l.Expect(waiting.Labels).To(HaveKeyWithValue(inherit.InitializationLabel, "waiting"))
		l.Expect(l.stored(fresh).GetLabels()).NotTo(HaveKey(inherit.InitializationLabel))

		<-time.After(time.Minute)
		l.Expect(first(l.taintsOf("md-1"))).To(Equal("drain:NoExecute,gpu:NoSchedule"))
		l.Expect(l.stored(waiting).GetLabels()).NotTo(HaveKey(inherit.InitializationLabel))
		l.change(waiting, func() { waiting.Spec.Taints = nil })
		<-time.After(time.Minute)
		l.Expect(first(l.taintsOf("md-1"))).To(Equal("gpu:NoSchedule"), "it has had it")
	})
}

// Another value of a taint evicts Pods that tolerate the old one. Until its turn has come, a Node keeps that.
func TestANewValueReachesNodesOneAfterTheOther(t *testing.T) {
	later(t, func(t *testing.T) {
		objects := []client.Object{clusterNamed("c"), declaring(map[string]string{taint.AlwaysAnnotation: "drain=new:NoExecute"})}
		objects = append(objects, family("c", "md", 2)...)
		for _, object := range objects {
			if n, ok := object.(*corev1.Node); ok {
				n.Annotations = map[string]string{clusterv1.TaintsFromMachineAnnotation: "", inherit.TaintsFromMachineAnnotation: "drain=old:NoExecute"}
				n.Spec.Taints = []corev1.Taint{{Key: "drain", Value: "old", Effect: corev1.TaintEffectNoExecute}}
			}
		}
		l := newLoop(t, objects...)
		l.NoExecuteRate = 1
		l.Expect(first(l.taintsOf("md-0"))).To(Equal("drain=new:NoExecute"))
		l.Expect(first(l.taintsOf("md-1"))).To(Equal("drain=old:NoExecute"))
		<-time.After(time.Minute)
		l.Expect(first(l.taintsOf("md-1"))).To(Equal("drain=new:NoExecute"))
	})
}

// When Cluster API's gate goes on, Machines with Nodes keep what evicts as annotations: Cluster API would bring what is typed to
// all Nodes at once.
func TestTheGateGoesOn(t *testing.T) {
	members := family("c", "md", 2)
	for _, object := range members {
		if m, ok := object.(*clusterv1.Machine); ok {
			m.Annotations = map[string]string{taint.AlwaysAnnotation: drains + ",gpu:NoSchedule"}
		}
	}
	fresh := rename(machine("fresh", "MachineSet/md"), "fresh", "c", "md")
	fresh.Spec.ProviderID, fresh.Annotations = "", map[string]string{taint.AlwaysAnnotation: drains + ",gpu:NoSchedule"}
	l := newLoop(t, append(members, fresh, theCluster())...)
	l.NoExecuteRate, l.policy = 1, inherit.Policy{PaceEviction: true, ClusterAPITaints: inherit.PropagationEnabled}
	for name, typed := range map[string]string{"md-0": "gpu:NoSchedule", "md-1": "gpu:NoSchedule", "fresh": "drain:NoExecute,gpu:NoSchedule"} {
		m := &clusterv1.Machine{}
		m.Namespace, m.Name = "ns", name
		l.stored(m)
		l.Expect(l.see(m)).To(Succeed())
		l.stored(m)
		var taints []corev1.Taint
		for _, t := range m.Spec.Taints {
			taints = append(taints, taint.ForNode(t))
		}
		l.Expect(taint.FormatList(taints)).To(Equal(typed), name)
	}
	l.Expect(first(l.taintsOf("md-0"))).To(Equal("drain:NoExecute,gpu:NoSchedule"))
	l.Expect(first(l.taintsOf("md-1"))).To(Equal("gpu:NoSchedule"))
}

func first(taints string, _ time.Duration) string { return taints }
