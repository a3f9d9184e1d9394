// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/heirloom-dev/heirloom/pkg/controllers"
	"github.com/heirloom-dev/heirloom/pkg/workload"
)

// The changes of an event.
func status(metav1.Object, metav1.Object)    {} // nothing of it is kept
func something(before, _ metav1.Object)      { before.SetFinalizers([]string{"another"}) }
func generation(before, after metav1.Object) { after.SetGeneration(before.GetGeneration() + 1) }
func resynced(before, after metav1.Object)   { before.SetResourceVersion(after.GetResourceVersion()) }
func paused(_, after metav1.Object)          { after.(*clusterv1.Cluster).Spec.Paused = new(true) }
func resumed(before, _ metav1.Object)        { before.(*clusterv1.Cluster).Spec.Paused = new(true) }
func resumedByAnnotation(before, _ metav1.Object) {
	before.SetAnnotations(pairs(clusterv1.PausedAnnotation))
}
func labelled(before, _ metav1.Object) { before.SetLabels(pairs("another=label")) }
func TestWhatAnEventLeadsTo(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, object string
		change       func(before, after metav1.Object)
		leadsTo      []string
	}{
		{"a ClusterClass", "class", generation, append(nodes("c", "d"), "FakeControlPlane/cp-c", "FakeControlPlane/cp-d", "MachineDeployment/md-c", "MachineDeployment/md-d", "MachinePool/mp-c", "MachinePool/mp-d")},
		{"a Cluster", "c", generation, append(nodes("c"), "FakeControlPlane/cp-c", "MachineDeployment/md-c", "MachinePool/mp-c")},
		{"a Cluster that is resumed", "c", resumed, everything("c")},
		{"a Cluster that is resumed by annotation", "c", resumedByAnnotation, everything("c")},
		{"a Cluster again", "c", resynced, []string{"FakeControlPlane/cp-c"}},
		{"a control plane", "cp-c", something, []string{"FakeControlPlane/cp-c", "Machine/k-c"}},
		{"a MachineDeployment", "md-c", something, []string{"MachineDeployment/md-c", "MachineSet/ms-c"}},
		{"a MachineDeployment that declares something else", "md-c", generation, []string{"MachineDeployment/md-c", "MachineSet/ms-c", "Node/m-c", "in c: Node/m-c"}},
		{"a MachineSet", "ms-c", something, []string{"FakeConfig/config-c", "FakeMachine/infra-c", "Machine/m-c", "MachineSet/ms-c"}},
		{"a MachineSet that declares something else", "ms-c", generation, []string{"FakeConfig/config-c", "FakeMachine/infra-c", "Machine/m-c", "MachineSet/ms-c", "Node/m-c", "in c: Node/m-c"}},
		{"a MachinePool", "mp-c", something, []string{"Machine/p-c", "MachinePool/mp-c", "Node/pooled-c", "in c: Node/pooled-c"}},
		{"a Machine", "m-c", something, []string{"FakeConfig/config-c", "FakeMachine/infra-c", "Machine/m-c", "Node/m-c", "in c: Node/m-c"}},
		{"an InfraMachine", "infra-c", something, []string{"FakeConfig/config-c", "FakeMachine/infra-c", "Machine/m-c"}},
		{"a BootstrapConfig", "config-c", something, []string{"FakeConfig/config-c", "FakeMachine/infra-c", "Machine/m-c"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // most of the time the loop leaves Nodes to Cluster API
			l, f := awake(t)
			l.updated(f[tc.object], tc.change)
			l.eventually(l.written).Should(ConsistOf(tc.leadsTo))
			l.Expect(samplesOf(t, l.registry)).NotTo(ContainElement(ContainSubstring("error")))
		})
	}
}

// A Node is looked at when something changes that the rules read, and with every controllers.
func TestWhichEventsOfANodeCount(t *testing.T) {
	t.Parallel()
	l, f := awake(t)
	for name, change := range map[string]func(before, after *corev1.Node){
		"nothing, as in a resync": func(before, after *corev1.Node) { before.ResourceVersion = after.ResourceVersion },
		"a label":                 func(before, _ *corev1.Node) { before.Labels = pairs("another=label") },
		"a taint":                 func(before, _ *corev1.Node) { before.Spec.Taints = []corev1.Taint{{Key: "another"}} },
		"the providerID":          func(before, _ *corev1.Node) { before.Spec.ProviderID = "" },
		"an address": func(before, _ *corev1.Node) {
			before.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
		},
		"that it is being deleted": func(_, after *corev1.Node) {
			after.DeletionTimestamp = &metav1.Time{Time: after.CreationTimestamp.Time}
		},
	} {
		l.lose(l.server, f["Node/m-c"])
		l.writes.take()
		l.updated(f["Node/m-c"], func(before, after metav1.Object) { change(before.(*corev1.Node), after.(*corev1.Node)) })
		l.eventually(l.written).Should(ConsistOf("Node/m-c"), name)
	}
}

// What changes nothing for anybody wakes nobody. Another Cluster that is resumed then is reconciled, and what came before would be as
// well: queues keep their order.
func TestWhatWakesNobody(t *testing.T) {
	t.Parallel()
	l, f := awake(t)
	for _, object := range []string{"c", "class", "cp-c", "md-c", "ms-c", "mp-c", "m-c", "infra-c", "config-c", "Node/m-c"} {
		l.updated(f[object], status)
	}
	l.updated(f["c"], labelled)
	l.updated(f["c"], paused)
	l.updated(f["d"], resumed)
	l.eventually(l.written).Should(ConsistOf(everything("d")))
}

func TestTheEventsOfAWorkloadClustersNodes(t *testing.T) {
	t.Parallel()
	l, f := awake(t)
	l.workloads.caches[key("c")].of(f["Node/m-c"]).Add(node("m-c"))
	l.eventually(l.written).Should(ConsistOf("in c: Node/m-c"))
}

func TestASchemaThatChanges(t *testing.T) {
	t.Parallel()
	l, _ := awake(t)
	l.schemas.Publish()
	l.eventually(l.written).Should(ConsistOf("FakeControlPlane/cp-c", "FakeControlPlane/cp-d"))
}

// A workload cluster as a whole is looked at when its connection or its Cluster changes. Where parameters of a policy follow
// the Machines, it is also when a Machine does.
func TestWhatWakesAWorkloadCluster(t *testing.T) {
	t.Parallel()
	const byWebhook, byPolicy = "ensure webhook in ns/", "ensure policy in ns/"
	l, f := awake(t)
	l.own.Store(&client.ObjectKey{})
	machines := func(change func(before, after metav1.Object)) func(*loop, fleet) {
		return func(l *loop, f fleet) {
			l.change(f["c"], func() { f["c"].SetLabels(pairs(workload.AdmissionLabel + "=policy")) })
			l.updated(f["m-d"], change)
			l.updated(f["m-c"], change)
		}
	}
	for _, tc := range []struct {
		name  string
		fire  func(*loop, fleet)
		asked []string
	}{
		{"its connection", func(l *loop, f fleet) { l.workloads.connected <- event.GenericEvent{Object: f["c"]} }, []string{byWebhook + "c"}},
		{"its Cluster's label", func(l *loop, f fleet) { l.updated(f["c"], labelled) }, []string{byWebhook + "c"}},
		{"its Cluster's annotation", func(l *loop, f fleet) { l.updated(f["c"], resumedByAnnotation) }, []string{byWebhook + "c"}},
		{"its Cluster's spec", func(l *loop, f fleet) { l.updated(f["c"], generation) }, []string{byWebhook + "c"}},
		{"its Cluster again", func(l *loop, f fleet) { l.updated(f["c"], resynced) }, []string{byWebhook + "c"}},
		{"the ways themselves", func(l *loop, _ fleet) { l.admissions <- event.GenericEvent{Object: &clusterv1.Cluster{}} }, []string{byWebhook + "c", byWebhook + "d"}},
		{"its Machine, if it is admitted by policy", machines(something), []string{byPolicy + "c"}},
		{"not its Machine's status", func(l *loop, f fleet) {
			machines(status)(l, f)
			l.updated(f["d"], generation)
		}, []string{byWebhook + "d"}},
		{"not a Machine again", func(l *loop, f fleet) {
			machines(resynced)(l, f)
			l.updated(f["d"], generation)
		}, []string{byWebhook + "d"}},
		{"not its Cluster's status", func(l *loop, f fleet) {
			l.updated(f["c"], status)
			l.updated(f["d"], generation)
		}, []string{byWebhook + "d"}},
	} {
		l.asked.take()
		tc.fire(l, f)
		l.eventually(func() []string {
			return slices.DeleteFunc(l.asked.all(), func(line string) bool { return !strings.HasPrefix(line, "ensure") })
		}).Should(ConsistOf(tc.asked), tc.name)
	}
}

// A burst of changes of Machines makes the parameters be looked at a few times, not once for each.
func TestABurstOfMachines(t *testing.T) {
	t.Parallel()
	l, f := awake(t)
	l.own.Store(&client.ObjectKey{})
	l.change(f["c"], func() { f["c"].SetLabels(pairs(workload.AdmissionLabel + "=policy")) })
	asked := func() []string {
		return slices.DeleteFunc(l.asked.all(), func(line string) bool { return line != "ensure policy in ns/c" })
	}
	l.asked.take()
	begin := time.Now()
	for looks := 1; looks <= 3; looks++ {
		for range 100 {
			l.updated(f["m-c"], something)
		}
		l.eventually(func() int { return len(asked()) }).Should(BeNumerically(">=", looks), "what comes last is handled, too")
	}
	l.Expect(len(asked())).To(BeNumerically("<=", 2+int(time.Since(begin)/time.Second)))
}

// An event whose objects cannot be found is passed over: the next resync repeats it. The loop goes on.
func TestAnEventWhoseObjectsCannotBeFound(t *testing.T) {
	t.Parallel()
	failed := errors.New("no cache")
	for _, tc := range []struct{ name, object, kind, unseen string }{
		{"the Machines of a MachineSet", "ms-c", "Machine", "Machine/m-c"},
		{"the Clusters of a ClusterClass", "class", "Cluster", "FakeControlPlane/cp-c"},
		{"the MachineDeployments of a ClusterClass", "class", "MachineDeployment", "MachineDeployment/md-c"},
		{"the MachinePools of a Cluster", "c", "MachinePool", "MachinePool/mp-c"},
		{"the Nodes of a Machine", "m-c", "Node", "Node/m-c"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // most of the time the loop leaves Nodes to Cluster API
			l, f := awake(t)
			l.broken.set(tc.kind, failed)
			l.updated(f[tc.object], resumedOrChanged)
			l.broken.clear(tc.kind)
			l.updated(f["d"], resumed)
			l.eventually(l.written).Should(ContainElements(everything("d")))
			l.Expect(l.written()).NotTo(ContainElement(tc.unseen))
		})
	}
}

// When all Nodes are to be looked at, a cluster that cannot be read keeps no other from it, and the log says which and why.
// One that is not connected has none.
func TestAllNodesButThoseThatCannotBeRead(t *testing.T) {
	var objects []client.Object
	for _, name := range []string{"away", "broken", "c", "unlisted"} {
		cluster := theCluster()
		cluster.Name = name
		objects = append(objects, cluster)
	}
	l := newLoop(t, append(objects, machineSet(), nodeMachine("m"))...)
	l.Admission.Changes = l.admissions
	l.workloads.brokenOf[key("broken")] = errors.New("no way")
	l.connect("c", node("m"))
	l.workloads.clients[key("unlisted")] = interceptor.NewClient(l.connect("unlisted"), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no list")
		},
	})
	l.start()
	l.changed.Publish()
	l.eventually(l.written).Should(ConsistOf("in c: Node/m"))
	l.Expect(l.logged.all()).To(ContainElement(And(
		ContainSubstring("reaching the workload cluster ns/broken: no way"), ContainSubstring("listing the Nodes of ns/unlisted: no list"),
		Not(ContainSubstring("ns/away")),
	)))
}

// resumedOrChanged is a change of which everybody wants to know.
func resumedOrChanged(before, after metav1.Object) {
	generation(before, after)
	if _, ok := before.(*clusterv1.Cluster); ok {
		resumed(before, after)
	}
}

func TestSetupAddsTheControllers(t *testing.T) {
	l := newLoop(t)
	for _, name := range []string{"controlplane", "machinedeployment", "machinepool", "machineset", "machine", "node", "workload"} {
		l.Expect(l.running().named(name)).NotTo(BeNil(), name)
	}
	l.Expect(l.manager.controllers).To(HaveLen(9), "and more workers of the two that talk to workload clusters")

	full := &fakeManager{cache: l.informers, client: l.Client, full: errors.New("no room")}
	err := controllers.Setup(full, l.Dependencies)
	l.Expect(err).To(MatchError(full.full))
	l.Expect(err).To(MatchError(MatchRegexp("^setting up the [a-z]+ controller: ")))
}
