// SPDX-License-Identifier: Apache-2.0

package world

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// judge compares the final state with the declarations: each key must reach the places in the table of rules, and no key may be left that
// is no longer declared. It has its own version of the few rules that it needs, so that it also finds faults of the rules.
func (w *World) judge() {
	sets := map[string]int{}
	for _, set := range w.management.objects("MachineSet") {
		sets[set.GetLabels()[clusterv1.ClusterNameLabel]]++
	}
	for _, md := range w.management.objects("MachineDeployment") {
		cluster := md.GetName()
		if sets[cluster] != 1 {
			w.history.violated("MachineDeployment %s has %d MachineSets: what can be changed in place has rolled out", cluster, sets[cluster])
		}
		labels, _, _ := unstructured.NestedStringMap(md.Object, "spec", "template", "metadata", "labels")
		annotations, _, _ := unstructured.NestedStringMap(md.Object, "spec", "template", "metadata", "annotations")
		want := content{labels: labels, annotations: annotations}
		for _, kind := range []string{"Machine", "FakeMachine"} {
			for _, object := range w.management.objects(kind) {
				if object.GetLabels()[clusterv1.ClusterNameLabel] == cluster && w.stays(object) {
					w.equal(kind, object, want)
				}
			}
		}
		w.judgeNodes(cluster, want)
	}
}

// stays reports whether an object is not being deleted and has an owner: there is no garbage collector here, and Cluster API may create the
// FakeMachine of a MachineSet that was just deleted.
func (w *World) stays(object *unstructured.Unstructured) bool {
	owned := slices.ContainsFunc(object.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return slices.ContainsFunc(w.management.objects(ref.Kind), func(owner *unstructured.Unstructured) bool { return owner.GetUID() == ref.UID })
	})
	return owned && object.GetDeletionTimestamp() == nil
}

// judgeNodes compares the Nodes of a Cluster with the declarations for them.
func (w *World) judgeNodes(cluster string, want content) {
	// FakeMachines count, and not Machines: after a lost answer, Cluster API deletes the FakeMachine of a Machine that it has created
	// nevertheless.
	machines := map[string]bool{}
	for _, m := range w.management.objects("FakeMachine") {
		machines[m.GetName()] = m.GetLabels()[clusterv1.ClusterNameLabel] == cluster && w.stays(m)
	}
	wanted := content{labels: nodeKeys(want.labels), annotations: nodeKeys(want.annotations)}
	list, err := taint.ParseList(want.annotations[taint.AlwaysAnnotation])
	w.history.must(err)
	for _, t := range list {
		wanted.taints = append(wanted.taints, taint.Format(t))
	}
	nodes := 0
	for _, of := range w.clusters {
		if of.key.Name != cluster {
			continue
		}
		for _, node := range of.objects("Node") {
			if machines[node.GetName()] {
				nodes++
				w.equal("Node", node, wanted)
			}
		}
	}
	if alive := len(slices.DeleteFunc(slices.Collect(maps.Values(machines)), func(is bool) bool { return !is })); nodes != alive {
		w.history.violated("%d of %d FakeMachines of %s have a Node", nodes, alive, cluster)
	}
}

// content has the declared entries that an object should have.
type content struct {
	labels, annotations map[string]string
	taints              []string
}

func nodeKeys(all map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range all {
		if strings.HasPrefix(key, "node.cluster.x-k8s.io/") || strings.HasPrefix(key, "node-role.kubernetes.io/") {
			kept[key] = value
		}
	}
	return kept
}

func (w *World) equal(kind string, object *unstructured.Unstructured, want content) {
	compare := func(what string, keys []string, has, want map[string]string) {
		for _, key := range keys {
			value, ok := has[key]
			wanted, wants := want[key]
			if (ok != wants || value != wanted) && (wants || !w.history.mayStay(kind, object.GetName(), key)) {
				w.history.violated("%s %s ends with %s %s=%q (there: %t), which should be %q (there: %t)", kind, object.GetName(), what, key, value, ok, wanted, wants)
			}
		}
	}
	compare("label", labels, object.GetLabels(), want.labels)
	compare("annotation", annotations, object.GetAnnotations(), want.annotations)
	if kind != "Node" {
		return
	}
	var has []string
	for _, t := range taintsOf(object) {
		text := taint.Format(t)
		taken := (w.history.taken[object.GetName()+" "+text] || w.history.blinded[object.GetName()]) && !slices.Contains(want.taints, text)
		if t.Key != foreignKey && t.Key != corev1.TaintNodeNotReady && !taken { // the API server adds the taint not-ready to each new Node
			has = append(has, text)
		}
	}
	slices.Sort(has)
	slices.Sort(want.taints)
	if !slices.Equal(has, want.taints) {
		w.history.violated("Node %s ends with the taints %v, which should be %v", object.GetName(), has, want.taints)
	}
}
