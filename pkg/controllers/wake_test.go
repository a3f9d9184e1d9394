// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/sim/fakeclient"
)

// fleet holds a Cluster and an object of each kind, by a name such as "md-c" or "Node/m-c". All names end in the name of the Cluster.
type fleet map[string]client.Object

// newFleet returns a fleet with Machines m of a MachineSet, k of a control plane and p of a MachinePool, and Nodes of m and of the
// MachinePool.
func newFleet(c string) fleet {
	f, md, ms, mp := fleet{}, managed(machineDeployment("md=1")), machineSet("ms=1"), managed(machinePool("mp=1", pool+"=a"))
	ms.OwnerReferences = ownedBy("ms", "MachineDeployment/md-"+c).OwnerReferences
	mp.Spec.ProviderIDList = []string{"id-pooled-" + c}
	m, k, p, cluster := machine("m", "MachineSet/ms-"+c), machine("k", "AcmeControlPlane/cp-"+c), machine("p", "MachinePool/mp-"+c), managedCluster()
	infra := provider(fakeclient.InfraMachine, ownedBy("infra-"+c, "Machine/m-"+c))
	config := provider(fakeclient.BootstrapConfig, ownedBy("config-"+c, "Machine/m-"+c))
	m.Labels[pool], m.Spec.ProviderID = "a", "id-m-"+c
	refer(m, infra, config)
	cluster.Spec.ControlPlaneRef.Name = "cp-" + c
	for name, object := range map[string]client.Object{
		c: cluster, "cp-" + c: managed(controlPlane("cp=1")), "md-" + c: md, "ms-" + c: ms, "mp-" + c: mp, "m-" + c: m, "k-" + c: k, "p-" + c: p,
		"infra-" + c: infra, "config-" + c: config,
		"Node/m-" + c: node("m-" + c), "Node/pooled-" + c: node("pooled-" + c),
	} {
		object.SetName(strings.TrimPrefix(name, "Node/"))
		object.SetUID(types.UID(object.GetName()))
		if labels := object.GetLabels(); labels != nil {
			object.SetLabels(with(labels, clusterv1.ClusterNameLabel, c))
		}
		f[name] = object
	}
	for _, of := range []*string{&md.Spec.ClusterName, &ms.Spec.ClusterName, &mp.Spec.ClusterName, &m.Spec.ClusterName, &k.Spec.ClusterName, &p.Spec.ClusterName} {
		*of = c
	}
	return f
}

// everything returns the objects that the loop writes when it reconciles all objects of the Cluster.
func everything(c string) []string {
	all := []string{
		"AcmeConfig/config-" + c, "AcmeControlPlane/cp-" + c, "AcmeMachine/infra-" + c,
		"Machine/k-" + c, "Machine/m-" + c, "Machine/p-" + c, "MachineDeployment/md-" + c, "MachinePool/mp-" + c, "MachineSet/ms-" + c,
	}
	return append(all, nodes(c)...)
}

// nodes returns all Nodes of these Clusters. Cluster c is the management cluster.
func nodes(clusters ...string) (all []string) {
	for _, c := range clusters {
		in := map[string]string{"d": "in d: "}[c]
		all = append(all, in+"Node/m-"+c, in+"Node/pooled-"+c)
	}
	return all
}

// awake runs the loop over Clusters c and d of one ClusterClass. All their objects have lost their inherited entries, and no event has
// reported the loss.
func awake(t *testing.T) (*loop, fleet) {
	t.Helper()
	f := fleet{"class": clusterClass("class=1")}
	maps.Copy(f, newFleet("c"))
	maps.Copy(f, newFleet("d"))
	l := newLoop(t, slices.Collect(maps.Values(f))...)
	l.connect("d", f["Node/m-d"].DeepCopyObject().(client.Object), f["Node/pooled-d"].DeepCopyObject().(client.Object))
	l.connect("c")
	l.ManagementCluster = key("c")
	l.workloads.caches[key("d")] = newInformers(l.server.Scheme())
	l.admitted()
	l.start()
	l.changed.Publish()
	l.eventually(l.written).Should(ConsistOf(slices.Concat(everything("c"), everything("d"))), "a change of the policy reconciles all objects")
	l.eventually(l.workloads.watched.all).Should(ConsistOf("d: heirloom-nodes"))
	l.eventually(l.asked.all).Should(ConsistOf(
		"ensure webhook in ns/d", "remove policy from ns/d", "remove webhook from ns/c", "remove policy from ns/c"))
	synctest.Wait() // nothing is reconciled any more
	for _, object := range f {
		l.lose(l.server, object)
	}
	for _, name := range []string{"m-d", "pooled-d"} {
		l.lose(l.workloads.servers[key("d")], node(name))
	}
	for _, journal := range []*journal{l.writes, l.workloads.watched, l.asked} {
		journal.take()
	}
	return l, f
}

// If workload clusters are skipped, all other objects inherit, including the Nodes of the management cluster.
func TestWithoutWorkloadClusters(t *testing.T) {
	f := fleet{"class": clusterClass("class=1")}
	maps.Copy(f, newFleet("c"))
	maps.Copy(f, newFleet("d"))
	l := newLoop(t, slices.Collect(maps.Values(f))...)
	l.Workloads = nil
	l.start()
	l.changed.Publish()
	withoutNodes := slices.DeleteFunc(everything("d"), func(what string) bool { return slices.Contains(nodes("d"), what) })
	l.eventually(l.written).Should(ConsistOf(slices.Concat(everything("c"), withoutNodes)))
}

// lose removes the inherited entries from an object.
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

// written returns the objects that the loop has written since the last take, without duplicates.
func (l *loop) written() []string {
	var names []string
	for _, line := range l.writes.all() {
		names = append(names, strings.NewReplacer("applies ", "", "patches ", "").Replace(line))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// updated sends an update event for an object with this change.
func (l *loop) updated(object client.Object, change func(before, after metav1.Object)) {
	l.t.Helper()
	before, _ := object.DeepCopyObject().(client.Object)
	after, _ := object.DeepCopyObject().(client.Object)
	before.SetResourceVersion("1")
	change(before, after)
	l.informers.of(object).Update(before, after)
}

// Changes of an update event.
func status(metav1.Object, metav1.Object)    {} // the loop keeps no status
func something(before, _ metav1.Object)      { before.SetFinalizers([]string{"another"}) }
func generation(before, after metav1.Object) { after.SetGeneration(before.GetGeneration() + 1) }
func resynced(before, after metav1.Object)   { before.SetResourceVersion(after.GetResourceVersion()) }
func paused(_, after metav1.Object)          { after.(*clusterv1.Cluster).Spec.Paused = new(true) }
func cleanedUp(_, after metav1.Object) {
	after.SetLabels(with(after.GetLabels(), inherit.IgnoreLabel, inherit.IgnoreAndCleanUp))
}
func resumed(before, _ metav1.Object) { before.(*clusterv1.Cluster).Spec.Paused = new(true) }
func names(before, _ metav1.Object) {
	before.SetAnnotations(pairs(inherit.SyncLabelsAnnotation + "=team"))
}
func moved(before, _ metav1.Object)     { before.SetLabels(pairs(clusterv1.WatchLabel + "=another")) }
func labeled(before, _ metav1.Object)   { before.SetLabels(pairs("another=label")) }
func annotated(before, _ metav1.Object) { before.SetAnnotations(pairs(clusterv1.PausedAnnotation)) }

// update returns a function that sends an update event for an object with this change.
func update(object string, change func(before, after metav1.Object)) func(*loop, fleet) {
	return func(l *loop, f fleet) { l.updated(f[object], change) }
}

func TestEventsEnqueueDependents(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		happens func(*loop, fleet)
		leadsTo []string
	}{
		{"a ClusterClass", update("class", generation), append(nodes("c", "d"), "AcmeControlPlane/cp-c", "AcmeControlPlane/cp-d", "MachineDeployment/md-c", "MachineDeployment/md-d", "MachinePool/mp-c", "MachinePool/mp-d")},
		{"a Cluster", update("c", generation), append(nodes("c"), "AcmeControlPlane/cp-c", "MachineDeployment/md-c", "MachinePool/mp-c")},
		{"a Cluster that is resumed", update("d", resumed), everything("d")},
		{"a Cluster that is cleaned up", update("d", cleanedUp), everything("d")},
		{"a Cluster that is not paused any more", update("c", annotated), everything("c")},
		{"a Cluster that names other keys", update("d", names), everything("d")},
		{"a Cluster that goes to another instance", update("d", moved), everything("d")},
		{"a ClusterClass that names other keys", update("class", names), append(everything("c"), everything("d")...)},
		{"a Cluster again", update("c", resynced), []string{"AcmeControlPlane/cp-c"}},
		{"a control plane", update("cp-c", something), []string{"AcmeControlPlane/cp-c", "Machine/k-c"}},
		{"a MachineDeployment", update("md-c", something), []string{"MachineDeployment/md-c", "MachineSet/ms-c"}},
		{"a MachineDeployment that declares something else", update("md-d", generation), []string{"MachineDeployment/md-d", "MachineSet/ms-d", "in d: Node/m-d"}},
		{"a MachineSet", update("ms-c", something), []string{"AcmeConfig/config-c", "AcmeMachine/infra-c", "Machine/m-c", "MachineSet/ms-c"}},
		{"a MachineSet that declares something else", update("ms-c", generation), []string{"AcmeConfig/config-c", "AcmeMachine/infra-c", "Machine/m-c", "MachineSet/ms-c", "Node/m-c"}},
		{"a MachinePool", update("mp-c", something), []string{"Machine/p-c", "MachinePool/mp-c", "Node/pooled-c"}},
		{"a Machine", update("m-c", something), []string{"AcmeConfig/config-c", "AcmeMachine/infra-c", "Machine/m-c", "Node/m-c"}},
		{"a workload's Machine", update("m-d", something), []string{"AcmeConfig/config-d", "AcmeMachine/infra-d", "Machine/m-d", "in d: Node/m-d"}},
		{"an InfraMachine", update("infra-c", something), []string{"AcmeConfig/config-c", "AcmeMachine/infra-c", "Machine/m-c"}},
		{"a BootstrapConfig", update("config-c", something), []string{"AcmeConfig/config-c", "AcmeMachine/infra-c", "Machine/m-c"}},
		{"a Node's label", update("Node/m-c", labeled), []string{"Node/m-c"}},
		{"a Node again", update("Node/m-c", resynced), []string{"Node/m-c"}},
		{"a Node's deletion", update("Node/m-c", func(before, _ metav1.Object) { before.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)}) }), []string{"Node/m-c"}},
		{"a Node's taint", update("Node/m-c", func(before, _ metav1.Object) { before.(*corev1.Node).Spec.Taints = []corev1.Taint{{Key: "x"}} }), []string{"Node/m-c"}},
		{"a Node's providerID", update("Node/m-c", func(before, _ metav1.Object) { before.(*corev1.Node).Spec.ProviderID = "" }), []string{"Node/m-c"}},
		{"a Node's new address", update("Node/m-c", func(before, _ metav1.Object) { before.(*corev1.Node).Status.Addresses = make([]corev1.NodeAddress, 1) }), []string{"Node/m-c"}},
		{"a Machine's nodeRef", update("k-c", func(before, _ metav1.Object) { before.(*clusterv1.Machine).Status.NodeRef.Name = "x" }), []string{"Machine/k-c"}},
		{"a Cluster skipped by label", update("c", func(_, after metav1.Object) { after.SetLabels(pairs("heirloom.dev/ignore")) }), nodes("c")},
		{"a schema that changes", func(l *loop, _ fleet) { l.schemas.Publish() }, []string{"AcmeControlPlane/cp-c", "AcmeControlPlane/cp-d"}},
		{"a new Cluster, which its objects may precede", func(l *loop, f fleet) { l.informers.of(f["c"]).Add(f["c"]) }, everything("c")},
		{"a new Node of a workload cluster", func(l *loop, f fleet) { l.workloads.caches[key("d")].of(f["Node/m-d"]).Add(f["Node/m-d"]) }, []string{"in d: Node/m-d"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, f := awake(t)
				tc.happens(l, f)
				l.eventually(l.written).Should(ConsistOf(tc.leadsTo))
				l.Expect(l.samples()).NotTo(ContainElement(ContainSubstring("error")))
			})
		})
	}
}

// An update without a relevant change causes no reconcile. The test then resumes another Cluster: queues keep their order, so an earlier
// request would have been handled by then.
func TestIrrelevantUpdatesEnqueueNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, f := awake(t)
		for _, object := range []string{"c", "class", "cp-c", "md-c", "ms-c", "mp-c", "m-c", "infra-c", "config-c", "Node/m-c"} {
			l.updated(f[object], status)
		}
		l.updated(f["c"], labeled)
		l.updated(f["c"], paused)
		l.updated(f["d"], resumed)
		l.eventually(l.written).Should(ConsistOf(everything("d")))
	})
}

// The loop reconciles a workload cluster as a whole when its connection or its Cluster changes. If parameters of a MutatingAdmissionPolicy
// follow the Machines, it also does when a Machine changes; the management cluster never has these parameters.
func TestEventsEnqueueWorkloadClusters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const byWebhook, byPolicy, removes = "ensure webhook in ns/d", "ensure policy in ns/d", "remove webhook from ns/c"
		l, f := awake(t)
		policies := func(machine string, change func(before, after metav1.Object)) func() {
			return func() {
				for _, c := range []string{"c", "d"} {
					l.change(f[c], func() { f[c].SetLabels(pairs(inherit.AdmissionLabel + "=policy")) })
				}
				l.updated(f[machine], change)
			}
		}
		both := func(first, second func()) func() { return func() { first(); second() } }
		woken := func() { l.updated(f["c"], generation) }
		for _, tc := range []struct {
			name  string
			fire  func()
			asked []string
		}{
			{"its connection", func() { l.workloads.connected <- event.GenericEvent{Object: f["d"]} }, []string{byWebhook}},
			{"its Cluster's label", func() { l.updated(f["d"], labeled) }, []string{byWebhook}},
			{"its Cluster's annotation", func() { l.updated(f["d"], annotated) }, []string{byWebhook}},
			{"its Cluster's spec", func() { l.updated(f["d"], generation) }, []string{byWebhook}},
			{"its Cluster again", func() { l.updated(f["d"], resynced) }, []string{byWebhook}},
			{"the ways themselves", func() { l.admissions <- event.GenericEvent{Object: &clusterv1.Cluster{}} }, []string{byWebhook, removes}},
			{"its Machine, if it is admitted by policy", policies("m-d", something), []string{byPolicy}},
			{"not its Machine's status", both(policies("m-d", status), woken), []string{removes}},
			{"not a Machine again", both(policies("m-d", resynced), woken), []string{removes}},
			{"not a Machine that no Node can be found for", both(policies("m-d", func(before, after metav1.Object) {
				something(before, after)
				before.(*clusterv1.Machine).Spec.ProviderID, after.(*clusterv1.Machine).Spec.ProviderID = "", ""
			}), woken), []string{removes}},
			{"not a Machine of the management cluster", both(policies("m-c", something), func() { l.updated(f["d"], generation) }), []string{byPolicy}},
			{"not its Cluster's status", both(func() { l.updated(f["d"], status) }, woken), []string{removes}},
		} {
			l.asked.take()
			tc.fire()
			l.eventually(func() []string {
				return slices.DeleteFunc(l.asked.all(), func(line string) bool { return !strings.HasPrefix(line, "ensure") && line != removes })
			}).Should(ConsistOf(tc.asked), tc.name)
		}

		l.asked.take() // a burst of changes updates the parameters a few times, not once per change
		begin := time.Now()
		for looks := 1; looks <= 3; looks++ {
			for range 100 {
				l.updated(f["m-d"], something)
			}
			l.eventually(func() int { return strings.Count(strings.Join(l.asked.all(), " "), byPolicy) }).Should(BeNumerically(">=", looks), "the last change is handled too")
		}
		l.Expect(strings.Count(strings.Join(l.asked.all(), " "), byPolicy)).To(BeNumerically("<=", 2+int(time.Since(begin)/time.Second)))
	})
}

// When the loop looks at all Nodes, a cluster that cannot be read does not stop the others, and the log names the cluster and the reason. A
// Cluster without a connection is not an error.
func TestUnreadableClustersDoNotHoldUpOthers(t *testing.T) {
	var objects []client.Object
	for _, name := range []string{"away", "broken", "c", "unlisted"} {
		objects = append(objects, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}})
	}
	l := newLoop(t, append(objects, machineSet(), nodeMachine("m"), node("m"))...)
	l.workloads.broken[key("broken")] = errors.New("no way")
	l.workloads.clients[key("unlisted")] = interceptor.NewClient(l.connect("unlisted"), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no list")
		},
	})
	l.start()
	l.changed.Publish()
	l.eventually(l.written).Should(ConsistOf("Node/m"))
	l.Expect(l.logged.all()).To(ContainElement(And(
		ContainSubstring("reaching the workload cluster ns/broken: no way"), ContainSubstring("listing the Nodes of ns/unlisted: no list"),
		Not(ContainSubstring("ns/away")),
	)))
}
