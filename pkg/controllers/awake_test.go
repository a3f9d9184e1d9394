// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/workload"
)

// fleet is a Cluster with an object of each kind, whose names end in its own. By kind and name, so that a test can find them.
type fleet map[string]client.Object

// newFleet has Machines m of a MachineSet, k of a control plane and p of a MachinePool, and Nodes of m and of the MachinePool.
func newFleet(c string) fleet {
	f, md, ms, mp := fleet{}, managed(machineDeployment("md=1")), machineSet("ms=1"), managed(machinePool("mp=1", pool+"=a"))
	ms.OwnerReferences = ownedBy("ms", "MachineDeployment/md-"+c).OwnerReferences
	mp.Spec.ProviderIDList = []string{"id-pooled-" + c}
	m, cluster := machine("m-"+c, "MachineSet/ms-"+c), managedCluster()
	m.Labels[pool], m.Spec.InfrastructureRef, m.Spec.Bootstrap = "a", withExternal("FakeMachine").Spec.InfrastructureRef, withExternal("FakeConfig").Spec.Bootstrap
	m.Spec.InfrastructureRef.Name, m.Spec.Bootstrap.ConfigRef.Name = "infra-"+c, "config-"+c
	cluster.Spec.ControlPlaneRef.Name = "cp-" + c
	for name, object := range map[string]client.Object{
		c: cluster, "cp-" + c: managed(controlPlane("cp=1")), "md-" + c: md, "ms-" + c: ms, "mp-" + c: mp, "m-" + c: m,
		"k-" + c: machine("k", "FakeControlPlane/cp-"+c), "p-" + c: machine("p", "MachinePool/mp-"+c),
		"infra-" + c:  provider("FakeMachine", ownedBy("infra", "Machine/m-"+c)),
		"config-" + c: provider("FakeConfig", ownedBy("config", "Machine/m-"+c)),
		"Node/m-" + c: node("m-" + c), "Node/pooled-" + c: node("pooled-" + c),
	} {
		object.SetName(strings.TrimPrefix(name, "Node/"))
		object.SetUID(types.UID(object.GetName()))
		if labels := object.GetLabels(); labels != nil {
			object.SetLabels(with(labels, clusterv1.ClusterNameLabel, c))
		}
		f[name] = object
	}
	md.Spec.ClusterName, ms.Spec.ClusterName, mp.Spec.ClusterName = c, c, c
	for _, name := range []string{"m-", "k-", "p-"} {
		f[name+c].(*clusterv1.Machine).Spec.ClusterName = c
	}
	return f
}

// everything is what is written when all objects of the Cluster are looked at. The management cluster itself is Cluster c.
func everything(c string) []string {
	all := []string{
		"FakeConfig/config-" + c, "FakeControlPlane/cp-" + c, "FakeMachine/infra-" + c,
		"Machine/k-" + c, "Machine/m-" + c, "Machine/p-" + c, "MachineDeployment/md-" + c, "MachinePool/mp-" + c, "MachineSet/ms-" + c,
	}
	return append(all, nodes(c)...)
}

// nodes are all Nodes of those Clusters.
func nodes(clusters ...string) (all []string) {
	for _, c := range clusters {
		all = append(all, "in "+c+": Node/m-"+c, "in "+c+": Node/pooled-"+c)
		if c == "c" {
			all = append(all, "Node/m-c", "Node/pooled-c")
		}
	}
	return all
}

// awake runs the loop over Clusters c and d of one ClusterClass. All that they have has lost what it inherits, and no event
// has told of that.
func awake(t *testing.T) (*loop, fleet) {
	t.Helper()
	f := fleet{"class": clusterClass("class=1")}
	maps.Copy(f, newFleet("c"))
	maps.Copy(f, newFleet("d"))
	l := newLoop(t, slices.Collect(maps.Values(f))...)
	for _, c := range []string{"c", "d"} {
		l.connect(c, f["Node/m-"+c].DeepCopyObject().(client.Object), f["Node/pooled-"+c].DeepCopyObject().(client.Object))
		l.workloads.caches[key(c)] = newInformers(l.server.Scheme())
	}
	l.Admission = &workload.Admission{Default: workload.AdmitByWebhook, Changes: l.admissions, Ways: map[string]workload.Way{
		workload.AdmitByWebhook: &way{name: "webhook", journal: l.asked}, workload.AdmitByPolicy: &way{name: "policy", journal: l.asked},
	}}
	l.start()
	l.changed.Publish()
	l.eventually(l.written).Should(ConsistOf(slices.Concat(everything("c"), everything("d"))), "all is looked at when the policy changes")
	l.eventually(l.workloads.watched.all).Should(ConsistOf("c: heirloom-nodes", "d: heirloom-nodes"))
	l.eventually(l.asked.all).Should(HaveLen(4))
	for _, object := range f {
		l.lose(l.server, object)
	}
	for _, c := range []string{"c", "d"} {
		for _, name := range []string{"m-", "pooled-"} {
			l.lose(l.workloads.servers[key(c)], node(name+c))
		}
	}
	for _, journal := range []*journal{l.writes, l.workloads.watched, l.asked} {
		journal.take()
	}
	return l, f
}

// lose takes from an object what it inherits.
func (l *loop) lose(server client.Client, object client.Object) {
	l.t.Helper()
	l.Expect(server.Get(l.t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
	labels := object.GetLabels()
	for _, name := range []string{"class", "md", "ms", "mp", "cp"} {
		delete(labels, name)
	}
	if _, ok := object.(*corev1.Node); ok {
		delete(labels, pool)
	}
	object.SetLabels(labels)
	l.Expect(server.Update(l.t.Context(), object)).To(Succeed())
}

// written are the objects that have been written since the last look, each once.
func (l *loop) written() []string {
	written := regexp.MustCompile(`^(in .: )?.*?(?:applies|patches) (\w+) \w*(/[\w-]+)@`)
	var names []string
	for _, line := range l.writes.all() {
		names = append(names, written.ReplaceAllString(written.FindString(line), "$1$2$3"))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// updated fires an event about an object in which that changes.
func (l *loop) updated(object client.Object, change func(before, after metav1.Object)) {
	l.t.Helper()
	before, ok := object.DeepCopyObject().(client.Object)
	l.Expect(ok).To(BeTrue())
	after, ok := object.DeepCopyObject().(client.Object)
	l.Expect(ok).To(BeTrue())
	before.SetResourceVersion("1")
	change(before, after)
	l.informers.of(object).Update(before, after)
}
