// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// enforces makes Heirloom write in all Clusters.
func (w *World) enforces(ctx context.Context) {
	for _, of := range w.clusters {
		setMode(ctx, w, Action{Who: of.key.Name, Value: string(inherit.Enforce)})
	}
}

// judge compares the final state with the declarations: each key must reach the places in the table of rules, and no key may be left that
// is no longer declared. It has its own version of the few rules that it needs, so that it also finds faults of the rules.
func (w *World) judge() {
	sets := map[string]int{}
	for _, set := range w.management.objects("MachineSet") {
		sets[setOf(set)]++
	}
	for _, object := range w.setObjects() {
		set := object.GetName()
		if object.GetKind() == "MachineDeployment" && sets[set] != 1 {
			w.history.violated("MachineDeployment %s has %d MachineSets: what can be changed in place has rolled out", set, sets[set])
		}
		template := w.templateFor(object)
		want := content{labels: template.GetLabels(), annotations: template.GetAnnotations()}
		if w.topological(set) {
			w.equal(object.GetKind(), object, want)
		}
		for _, kind := range []string{"Machine", "FakeMachine", "FakeConfig"} {
			for _, child := range w.management.objects(kind) {
				if w.history.members[child.GetName()] == set && w.stays(child) {
					w.equal(kind, child, want)
				}
			}
		}
		w.judgeNodes(set, template, want)
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

// judgeNodes compares the Nodes of a set with its declarations for Nodes.
func (w *World) judgeNodes(set string, template *unstructured.Unstructured, want content) {
	wanted := content{labels: nodeKeys(want.labels), annotations: nodeKeys(want.annotations)}
	for _, t := range alwaysOf(template) {
		wanted.taints = append(wanted.taints, taint.Format(t))
	}
	nodes, alive := 0, w.instances(set)
	for _, node := range w.cluster(clusterOf(set)).objects("Node") {
		if slices.Contains(alive, node.GetName()) {
			nodes++
			w.equal("Node", node, wanted)
			w.judgeGates(node, template)
			w.judgeFact(node)
		}
	}
	if nodes != len(alive) {
		w.history.violated("%d of %d FakeMachines of %s have a Node", nodes, len(alive), set)
	}
}

// instances returns the names of the instances of a set, which are also the names of their Nodes. FakeMachines count, and not Machines:
// after a lost answer, Cluster API deletes the FakeMachine of a Machine that it has created nevertheless.
func (w *World) instances(set string) []string {
	if kindOf(set) == "MachinePool" {
		return w.inPool(set)
	}
	var names []string
	for _, infra := range w.management.objects("FakeMachine") {
		if w.history.members[infra.GetName()] == set && w.stays(infra) {
			names = append(names, infra.GetName())
		}
	}
	return names
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

// mayStay reports whether an object may end with an entry that nobody declares.
func (w *World) mayStay(kind string, object *unstructured.Unstructured, entry string) bool {
	if kind == "Node" && w.history.excused[object.GetName()][entry] || w.history.disowned[object.GetName()+" "+keyOf(entry)] || w.history.partial[object.GetName()+" "+keyOf(entry)] {
		return true
	}
	// The neighbour owns the label of a Machine, whose InfraMachine and Node inherit it.
	return slices.ContainsFunc(w.management.objects("Machine"), func(m *unstructured.Unstructured) bool {
		return m.GetName() == object.GetName() && owns(m, neighbourUser, keyOf(entry))
	})
}

func (w *World) equal(kind string, object *unstructured.Unstructured, want content) {
	compare := func(what string, keys []string, has, want map[string]string) {
		for _, key := range keys {
			value, ok := has[key]
			wanted, wants := want[key]
			if (ok != wants || value != wanted) && (wants || !w.mayStay(kind, object, what+" "+key+"="+value)) {
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
		excused := !slices.Contains(want.taints, text) && w.mayStay(kind, object, "taint "+text) || slices.Contains(startKeys, t.Key)
		if t.Key != foreignKey && t.Key != corev1.TaintNodeNotReady && !excused { // the API server adds the taint not-ready to each new Node
			has = append(has, text)
		}
	}
	slices.Sort(has)
	slices.Sort(want.taints)
	if !slices.Equal(has, want.taints) {
		w.history.violated("Node %s ends with the taints %v, which should be %v", object.GetName(), has, want.taints)
	}
}
