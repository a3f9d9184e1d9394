// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// calm is the time without writes after which the fleets count as settled. Cluster API reconciles an object at most once a second, and no
// queue shows the objects that it defers until then.
const calm = 2 * time.Second

// pair has two fleets in one world, without Heirloom and with it.
type pair struct {
	*world
	alone, beside *fleet
}

// step runs the same functions for both fleets and expects equal results.
func (p *pair) step(name string, what ...func(*fleet)) {
	p.t.Helper()
	begun := time.Now()
	var both sync.WaitGroup
	for _, f := range []*fleet{p.alone, p.beside} {
		both.Go(func() {
			for _, do := range what {
				do(f)
			}
		})
	}
	both.Wait()
	if p.t.Failed() {
		p.t.FailNow() // the failure was in another goroutine
	}
	p.expectEqual(name)
	p.t.Logf("%s: as without Heirloom, after %s", name, time.Since(begun).Round(100*time.Millisecond))
}

// expectEqual waits until both fleets are settled, and compares them. On a busy machine, a controller may pause for longer than calm, so
// that one fleet is behind; the fleets have to become equal without a further step.
func (p *pair) expectEqual(after string) {
	p.t.Helper()
	var last map[string]string
	var since time.Time
	var written []string
	diff := ""
	p.Eventually(func(g Gomega) {
		objects, nodes, others := p.chain(), p.alone.allNodes(), p.beside.allNodes()
		if now := versions(objects, slices.Concat(nodes, others)); !maps.Equal(now, last) {
			written = slices.DeleteFunc(slices.Sorted(maps.Keys(now)), func(name string) bool { return now[name] == last[name] })
			last, since = now, time.Now()
		}
		g.Expect(time.Since(since)).To(BeNumerically(">=", calm), "writes continue: %v", written)
		g.Expect(p.queued()).To(BeEmpty(), "queues are not empty")
		without, with := p.alone.expectSettled(g, objects, nodes), p.beside.expectSettled(g, objects, others)
		diff = cmp.Diff(without, with)
		g.Expect(diff).To(BeEmpty(), "Heirloom makes a difference (-without, +with)")
	}).Should(Succeed(), func() string { return "after " + after + ", the last difference (-without, +with):\n" + diff })
	for _, object := range p.chain() {
		if object.GetNamespace() == p.alone.namespace {
			p.Expect(slices.ContainsFunc(object.GetManagedFields(), managedfields.IsOurs)).To(BeFalse(), object.GetName())
		}
	}
	for _, node := range p.alone.allNodes() {
		p.Expect(contentOf(node)).NotTo(ContainSubstring("heirloom.dev/"), node.GetName())
	}
}

// expectSettled expects the declared state. It returns each object and Node, without the values that differ from run to run.
func (f *fleet) expectSettled(g Gomega, objects, nodes []unstructured.Unstructured) (all []string) {
	if f.cluster != nil {
		f.built(g, nodes)
	}
	for _, object := range objects {
		if object.GetNamespace() != f.namespace {
			continue
		}
		all = append(all, normal(object))
		seen, found, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
		// After a conflict about its Node, Cluster API may leave a Machine's observedGeneration behind until the next reconcile.
		if found && object.GetKind() != machineKind.Kind {
			g.Expect(seen).To(Equal(object.GetGeneration()), "%s %s: status.observedGeneration is old", object.GetKind(), object.GetName())
		}
	}
	for _, node := range nodes {
		all = append(all, normal(node))
	}
	slices.Sort(all)
	return all
}

var (
	machineKind = clusterv1.GroupVersion.WithKind("Machine")
	nodeKind    = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
)

// chain returns all objects of the compared kinds.
func (w *world) chain() (all []unstructured.Unstructured) {
	for group, kinds := range map[string]string{
		"cluster.x-k8s.io":                "ClusterClass Cluster MachineDeployment MachineSet MachinePool Machine MachineHealthCheck",
		"controlplane.cluster.x-k8s.io":   "KubeadmControlPlane KubeadmControlPlaneTemplate",
		"bootstrap.cluster.x-k8s.io":      "KubeadmConfig KubeadmConfigTemplate",
		"infrastructure.cluster.x-k8s.io": "DevCluster DevClusterTemplate DevMachine DevMachineTemplate FakeMachinePool FakeMachinePoolTemplate",
	} {
		for _, kind := range strings.Fields(kinds) {
			all = append(all, w.list(w.Client, schema.GroupVersionKind{Group: group, Version: "v1beta2", Kind: kind}, "")...)
		}
	}
	return all
}

// versions shows whether anything was written. A Node's resourceVersion changes with every heartbeat, so its content counts.
func versions(objects, nodes []unstructured.Unstructured) map[string]string {
	all := map[string]string{}
	for _, object := range objects {
		all[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()+" "+string(object.GetUID())] = object.GetResourceVersion()
	}
	for _, node := range nodes {
		all["Node "+node.GetName()+" "+string(node.GetUID())] = contentOf(node)
	}
	return all
}

func contentOf(node unstructured.Unstructured) string {
	return text([]any{node.GetLabels(), node.GetAnnotations(), node.Object["spec"]})
}

// working matches a queue with waiting or unfinished items.
var working = regexp.MustCompile(`(?m)^workqueue_(?:depth|unfinished_work_seconds)\{(.*)\} [^0].*$`)

// queued returns the queues of Cluster API's managers and of Heirloom that are not empty.
func (w *world) queued() (queues []string) {
	urls := w.managers.MetricsURLs()
	if w.Heirloom != nil {
		urls["heirloom"] = w.MetricsURL
	}
	for _, url := range urls {
		metrics, err := stage.Metrics(w.ctx, url)
		w.Expect(err).NotTo(HaveOccurred())
		queues = append(queues, working.FindAllString(metrics, -1)...)
	}
	return queues
}

// expectNoMoreWrites expects that Cluster API has created and deleted the same numbers of objects in both fleets (no further revision,
// Machine or template), and that it has not written more objects with Heirloom. The total of its repeated writes differs a little from
// run to run.
func (p *pair) expectNoMoreWrites() {
	p.t.Helper()
	written, err := writesIn(p.auditLog, "cluster-api")
	p.Expect(err).NotTo(HaveOccurred())
	without, with := written["alone"], written["beside"]
	p.t.Logf("Cluster API wrote, status aside, %d times without Heirloom and %d times beside it: %v", without.total(), with.total(), with)
	p.Expect(with).To(HaveKey("create machines"))
	for _, of := range []writeCounts{without, with} {
		// Right after the gate was switched off, before Heirloom knows its state, Cluster API may refuse a Machine. It then creates the
		// Machine again, with new external objects. So external objects count only if they stayed.
		for _, kind := range []string{"devmachines", "kubeadmconfigs"} {
			of["create "+kind] -= of["delete "+kind]
		}
	}
	p.Expect(cmp.Diff(without.of("create "), with.of("create "))).To(BeEmpty(), "creations (-without, +with)")
	p.Expect(cmp.Diff(without.of("delete machine"), with.of("delete machine"))).To(BeEmpty(), "deletions (-without, +with)")
	p.Expect(float64(with.total())).To(BeNumerically("<=", 1.2*float64(without.total())))
}
