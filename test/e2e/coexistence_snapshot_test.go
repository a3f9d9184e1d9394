// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

var machineKind = clusterv1.GroupVersion.WithKind("Machine")

// chain are the kinds that are compared.
var chain = []schema.GroupVersionKind{
	clusterv1.GroupVersion.WithKind("MachineDeployment"),
	clusterv1.GroupVersion.WithKind("MachineSet"),
	machineKind,
	{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: "FakeMachine"},
	{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: "FakeMachineTemplate"},
}

// generated are the parts of names and hashes that differ from run to run.
var generated = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`workers-[bcdfghjklmnpqrstvwxz2456789]{5}-[bcdfghjklmnpqrstvwxz2456789]{5}`), "workers-SET-MACHINE"},
	{regexp.MustCompile(`workers-[bcdfghjklmnpqrstvwxz2456789]{5}`), "workers-SET"},
	{regexp.MustCompile(`set-[bcdfghjklmnpqrstvwxz2456789]{5}`), "set-MACHINE"},
	{regexp.MustCompile(`([0-9]{5,})-[bcdfghjklmnpqrstvwxz2456789]{5}`), "$1-SET"},
}

func (w *world) list(c client.Client, gvk schema.GroupVersionKind) []unstructured.Unstructured {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	w.Expect(c.List(w.ctx, list)).To(Succeed())
	return list.Items
}

// versions are the resource versions of the whole chain.
func (w *world) versions() map[string]string {
	all := map[string]string{}
	for _, gvk := range chain {
		for _, object := range w.list(w.Client, gvk) {
			all[gvk.Kind+" "+object.GetName()] = object.GetResourceVersion()
		}
	}
	return all
}

// settle waits until the MachineDeployment is what was asked for and nothing has been written for some seconds.
func (w *world) settle() {
	w.t.Helper()
	var last string
	since := time.Now()
	w.Eventually(func(g Gomega) {
		g.Expect(w.Client.Get(w.ctx, client.ObjectKeyFromObject(w.md), w.md)).To(Succeed())
		want := *w.md.Spec.Replicas
		g.Expect(w.md.Status.ObservedGeneration).To(Equal(w.md.Generation))
		for _, count := range []*int32{w.md.Status.Replicas, w.md.Status.ReadyReplicas, w.md.Status.UpToDateReplicas} {
			g.Expect(count).To(HaveValue(Equal(want)), "%v", w.md.Status.Conditions)
		}
		g.Expect(w.list(w.Client, machineKind)).To(HaveLen(int(want + w.lonely)))
		now, err := json.Marshal([]any{w.versions(), w.snapshot()})
		g.Expect(err).NotTo(HaveOccurred())
		if string(now) != last {
			last, since = string(now), time.Now()
		}
		g.Expect(time.Since(since)).To(BeNumerically(">", 5*time.Second), "something is still being written")
	}).WithTimeout(3 * patience).WithPolling(500 * time.Millisecond).Should(Succeed())
}

// snapshot returns every object of the chain and every Node, without what differs from run to run.
func (w *world) snapshot() []string {
	var all []string
	for _, gvk := range chain {
		for _, object := range w.list(w.Client, gvk) {
			all = append(all, w.normal(object))
		}
	}
	for _, node := range w.list(w.workload.Client, schema.GroupVersionKind{Version: "v1", Kind: "Node"}) {
		all = append(all, w.normal(node))
	}
	slices.Sort(all)
	return all
}

// normal leaves out ownership entries, status and what only Heirloom promises: taints declared by annotation.
func (w *world) normal(object unstructured.Unstructured) string {
	metadata := map[string]any{"name": object.GetName(), "labels": object.GetLabels(), "annotations": object.GetAnnotations()}
	if object.GetKind() == "Node" {
		metadata["annotations"] = ofClusterAPI(object.GetAnnotations())
	}
	if annotations, ok := metadata["annotations"].(map[string]string); ok {
		for _, name := range inherit.CapacityAnnotations() {
			delete(annotations, name) // what cluster-autoscaler is told
		}
	}
	owners := []string{}
	for _, ref := range object.GetOwnerReferences() {
		owners = append(owners, ref.Kind+" "+ref.Name)
	}
	metadata["owners"] = owners
	spec, _ := object.Object["spec"].(map[string]any)
	if taints, ok := spec["taints"].([]any); ok {
		taints = slices.DeleteFunc(slices.Clone(taints), onlyHeirloom)
		slices.SortFunc(taints, func(a, b any) int { return strings.Compare(text(a), text(b)) })
		spec["taints"] = taints
		if len(taints) == 0 {
			delete(spec, "taints")
		}
	}
	raw, err := yaml.Marshal(map[string]any{"kind": object.GetKind(), "metadata": metadata, "spec": spec})
	w.Expect(err).NotTo(HaveOccurred())
	normal := string(raw)
	for _, g := range generated {
		normal = g.what.ReplaceAllString(normal, g.with)
	}
	return normal
}

// ofClusterAPI leaves out of a Node's annotations what Heirloom writes there for taints declared by annotation.
func ofClusterAPI(annotations map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range annotations {
		if !strings.HasPrefix(key, "heirloom.dev/") {
			kept[key] = value
		}
	}
	tracked := slices.DeleteFunc(strings.Split(kept[clusterv1.TaintsFromMachineAnnotation], ","), func(entry string) bool {
		return entry == "" || strings.HasPrefix(entry, "annotated-")
	})
	kept[clusterv1.TaintsFromMachineAnnotation] = strings.Join(tracked, ",")
	return kept
}

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // it has been JSON
	}
	return string(raw)
}

// onlyHeirloom tells the taints that scenarios declare by annotation.
func onlyHeirloom(t any) bool {
	return strings.Contains(text(t), `"key":"annotated-`)
}

// writeCounts are numbers of write requests, by verb and resource.
type writeCounts map[string]int

// total leaves out those of a status: conditions come in more or fewer steps.
func (c writeCounts) total() int {
	total := 0
	for what, count := range c {
		if !strings.HasSuffix(what, "/status") {
			total += count
		}
	}
	return total
}

// writes counts the write requests of Cluster API, without events and leases.
func (w *world) writes() writeCounts {
	log, err := os.Open(filepath.Join(w.dir, "audit.log"))
	w.Expect(err).NotTo(HaveOccurred())
	defer log.Close()
	counts := writeCounts{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Resource, Subresource string }
		}
		w.Expect(json.Unmarshal(lines.Bytes(), &event)).To(Succeed())
		if event.User.Username != "cluster-api" || !slices.Contains([]string{"create", "update", "patch", "delete"}, event.Verb) {
			continue
		}
		if event.ObjectRef.Resource == "events" || event.ObjectRef.Resource == "leases" {
			continue
		}
		counts[event.Verb+" "+strings.TrimSuffix(event.ObjectRef.Resource+"/"+event.ObjectRef.Subresource, "/")]++
	}
	w.Expect(lines.Err()).NotTo(HaveOccurred())
	return counts
}
