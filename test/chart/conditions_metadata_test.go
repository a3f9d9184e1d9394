// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// The API server calls Heirloom for an update that changes Heirloom's entries, and not for an update of a foreign value.
func TestUpdatesOfForeignValuesAreNotAsked(t *testing.T) {
	machine := settled(t, &inherit.Template{Content: inherit.Content{
		Labels: map[string]string{"team": "ml"}, Annotations: map[string]string{"note": "inherited"},
	}}, newMachine(t, map[string]string{"own": "1", "cluster.x-k8s.io/cluster-name": "c"}, map[string]string{"example.com/seen": "10:00"}))
	node := settledNode(t, sourceOf(t, map[string]string{"node.cluster.x-k8s.io/pool": "a"}, nil),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"own": "1"}, Annotations: map[string]string{"example.com/seen": "10:00"}}})
	for _, tc := range []struct {
		webhook string
		before  *unstructured.Unstructured
		asked   map[string]bool
	}{
		{"machines.heirloom.dev", machine, map[string]bool{
			"labels/own=2": false, "annotations/example.com/seen=10:01": false, "labels/team=other": true, "labels/team": true, "annotations/note=x": true,
			"labels/own": true, "labels/new=1": true, "annotations/taints.heirloom.dev/always=a:NoSchedule": true, "labels/cluster.x-k8s.io/cluster-name=d": true,
		}},
		{"machines.heirloom.dev", newMachine(t, nil, map[string]string{"example.com/seen": "10:00"}), map[string]bool{
			"annotations/example.com/seen=10:01": true, // Heirloom has not seen this Machine yet
		}},
		{"nodes.heirloom.dev", node, map[string]bool{
			"labels/own=2": false, "annotations/example.com/seen=10:01": false, "labels/node.cluster.x-k8s.io/pool=b": true, "labels/node.cluster.x-k8s.io/pool": true,
			"labels/new=1": true, "annotations/heirloom.dev/record-from-machine=x": true, "annotations/cluster.x-k8s.io/labels-from-machine": true,
		}},
	} {
		asked := conditionsOf(t, tc.webhook)
		for change, want := range tc.asked {
			after := tc.before.DeepCopy()
			where, entry, _ := strings.Cut(change, "/")
			key, value, set := strings.Cut(entry, "=")
			if set {
				NewWithT(t).Expect(unstructured.SetNestedField(after.Object, value, "metadata", where, key)).To(Succeed())
			} else {
				unstructured.RemoveNestedField(after.Object, "metadata", where, key)
			}
			NewWithT(t).Expect(asked.match(t, tc.before, after)).To(Equal(want), "%s: %s", tc.webhook, change)
		}
	}
	another := machine.DeepCopy()
	NewWithT(t).Expect(unstructured.SetNestedField(another.Object, "2", "metadata", "labels", "own")).To(Succeed())
	entries := another.GetManagedFields()
	entries[slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == "somebody" })].Manager = "somebody else"
	another.SetManagedFields(entries)
	NewWithT(t).Expect(conditionsOf(t, "machines.heirloom.dev").match(t, machine, another)).To(BeTrue(), "it was another writer's value")
}

// An object that is created by apply may already have a deletionTimestamp, which does not skip the webhooks. Updates of Nodes always
// reach them.
func TestDeletionsInAdmission(t *testing.T) {
	deleting := func(object *unstructured.Unstructured) *unstructured.Unstructured {
		object = object.DeepCopy()
		object.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
		return object
	}
	m := newMachine(t, nil, nil)
	NewWithT(t).Expect(unstructured.SetNestedSlice(m.Object, []any{map[string]any{"key": "node.kubernetes.io/x"}}, "spec", "taints")).To(Succeed())
	node := settledNode(t, sourceOf(t, map[string]string{"node.cluster.x-k8s.io/pool": "a"}, nil), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	stripped := node.DeepCopy()
	stripped.SetLabels(nil)
	for _, tc := range []struct {
		webhook     string
		old, object *unstructured.Unstructured
		want        bool
	}{
		{"machines.heirloom.dev", nil, deleting(m), true},
		{"machines.heirloom.dev", deleting(newMachine(t, nil, nil)), deleting(m), false},
		{"machines.heirloom.dev", newMachine(t, nil, nil), m, true},
		{"taints.heirloom.dev", nil, deleting(m), true},
		{"nodes.heirloom.dev", nil, deleting(node), true},
		{"nodes.heirloom.dev", deleting(node), deleting(stripped), true},
	} {
		asked := conditionsOf(t, tc.webhook)
		NewWithT(t).Expect(asked.match(t, tc.old, tc.object)).To(Equal(tc.want), "%s, update: %v", tc.webhook, tc.old != nil)
	}
}

// Cluster API's topology controller compares the results of two dry runs. Heirloom is not asked about these, and about all other requests.
func TestDryRunsOfTheTopologyControllerAreNotAsked(t *testing.T) {
	owned, annotation := map[string]string{clusterv1.ClusterTopologyOwnedLabel: ""}, map[string]string{clusterv1.TopologyDryRunAnnotation: ""}
	for webhook, kind := range map[string]string{
		"machinedeployments.heirloom.dev": "MachineDeployment", "machines.heirloom.dev": "Machine", "controlplanes.heirloom.dev": "AcmeControlPlane",
	} {
		asked := conditionsOf(t, webhook)
		before := newMachine(t, nil, nil)
		before.SetKind(kind)
		for _, annotations := range []map[string]string{annotation, nil} {
			after := newMachine(t, owned, annotations)
			after.SetKind(kind)
			for _, asked.dryRun = range []bool{true, false} {
				for _, old := range []*unstructured.Unstructured{nil, before} {
					NewWithT(t).Expect(asked.match(t, old, after)).To(Equal(annotations == nil || !asked.dryRun),
						"%s, annotations: %v, dry run: %t, update: %t", webhook, annotations, asked.dryRun, old != nil)
				}
			}
		}
	}
}

// A change that the match conditions skip changes no inherited entry.
func TestMatchConditionsMissNoInheritedChange(t *testing.T) {
	machines := conditionsOf(t, "machines.heirloom.dev")
	nodes := conditionsOf(t, "nodes.heirloom.dev")
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 2))
		kept := 0
		for range 200 {
			template := &inherit.Template{Content: inherit.Content{Labels: metadata(r), Annotations: metadata(r)}}
			machine := settled(t, template, newMachine(t, metadata(r), metadata(r)))
			if after := changedAtRandom(t, r, machine); !machines.match(t, machine, after) {
				kept++
				for _, change := range planOf(t, template, after).Changes() {
					if !ownedBy(t, machine, "somebody", change) { // the writer may change its own value, which the loop repairs
						t.Fatalf("nobody is asked about a change from\n%v to\n%v, which needs %v", machine, after, change)
					}
				}
			}
			source := sourceOf(t, metadata(r), metadata(r))
			node := settledNode(t, source, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: metadata(r), Annotations: metadata(r)}})
			if after := changedAtRandom(t, r, node); !nodes.match(t, node, after) {
				kept++
				if becomes := (inherit.Policy{}).PlanNode(nodeOf(t, after), source, inherit.Turn{}); becomes.Changes() {
					t.Fatalf("nobody is asked about a change from\n%v to\n%v, which needs\n%+v", node, after, becomes.Result)
				}
			}
		}
		NewWithT(t).Expect(kept).To(BeNumerically(">", 40), "the conditions keep nothing away")
	}
}

// metadata returns labels or annotations with few keys, so that owner and object often have the same keys.
func metadata(r *rand.Rand) map[string]string {
	m := map[string]string{}
	for range r.IntN(5) {
		m[pick(r, "a", "b", "c", "node.cluster.x-k8s.io/a", "node-restriction.kubernetes.io/b", "cluster-autoscaler.example.com/c")] = pick(r, "1", "2")
	}
	return m
}

// ownedBy reports whether this manager alone owns the field of a change.
func ownedBy(t *testing.T, object *unstructured.Unstructured, manager string, change managedfields.Change) bool {
	t.Helper()
	owners := sets.New[string]()
	where, _ := strings.CutPrefix(change.Place, "metadata.")
	for _, entry := range object.GetManagedFields() {
		fields := fieldpath.NewSet()
		NewWithT(t).Expect(fields.FromJSON(entry.FieldsV1.GetRawReader())).To(Succeed())
		if fields.Has(fieldpath.MakePathOrDie("metadata", where, change.Name)) {
			owners.Insert(entry.Manager)
		}
	}
	return owners.Equal(sets.New(manager))
}

func changedAtRandom(t *testing.T, r *rand.Rand, before *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	after := before.DeepCopy()
	labels, annotations := after.GetLabels(), after.GetAnnotations()
	for _, m := range []map[string]string{labels, annotations} {
		for key := range m {
			switch r.IntN(12) {
			case 0:
				delete(m, key)
			case 1, 2:
				m[key] = "3"
			}
		}
	}
	after.SetLabels(labels)
	after.SetAnnotations(annotations)
	return after
}

func newMachine(t *testing.T, labels, annotations map[string]string) *unstructured.Unstructured {
	m := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"clusterName": "c"}}}
	m.SetAPIVersion(clusterv1.GroupVersion.String())
	m.SetKind("Machine")
	m.SetNamespace("default")
	m.SetName("m")
	m.SetLabels(labels)
	m.SetAnnotations(annotations)
	fields := fieldpath.NewSet()
	for where, all := range map[string]map[string]string{"labels": labels, "annotations": annotations} {
		for key := range all {
			fields.Insert(fieldpath.MakePathOrDie("metadata", where, key))
		}
	}
	raw, err := fields.ToJSON()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	m.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "somebody", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: clusterv1.GroupVersion.String(), FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(string(raw)),
	}})
	return m
}

// settled returns a Machine that has inherited from a template.
func settled(t *testing.T, template *inherit.Template, m *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	Expect := NewWithT(t).Expect
	raw, err := json.Marshal(m)
	Expect(err).NotTo(HaveOccurred())
	operations, err := planOf(t, template, m).Patch(raw, clusterv1.GroupVersion.String(), time.Unix(0, 0))
	Expect(err).NotTo(HaveOccurred())
	encoded, err := json.Marshal(operations)
	Expect(err).NotTo(HaveOccurred())
	patch, err := jsonpatch.DecodePatch(encoded)
	Expect(err).NotTo(HaveOccurred())
	if len(operations) > 0 {
		raw, err = patch.Apply(raw)
		Expect(err).NotTo(HaveOccurred())
	}
	return read(t, string(raw))
}

func planOf(t *testing.T, template *inherit.Template, object *unstructured.Unstructured) *managedfields.Plan {
	t.Helper()
	Expect := NewWithT(t).Expect
	m := &clusterv1.Machine{}
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, m)).To(Succeed())
	desired, dropped := inherit.Policy{}.MachineFrom(template, m)
	plan, err := managedfields.New(m, inherit.OfMachine(m), inherit.Decision{Outcome: inherit.Inherits, Desired: desired, Dropped: dropped}, nil)
	Expect(err).NotTo(HaveOccurred())
	return plan
}

func sourceOf(t *testing.T, labels, annotations map[string]string) inherit.NodeSource {
	t.Helper()
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m", Labels: labels, Annotations: annotations}}
	m.Spec.ClusterName, m.Status.NodeRef.Name = "c", "n"
	return inherit.Policy{}.SourceFor(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, m)
}

func settledNode(t *testing.T, source inherit.NodeSource, node *corev1.Node) *unstructured.Unstructured {
	t.Helper()
	plan := (inherit.Policy{}).PlanNode(inherit.ReadNode(node, time.Now()), source, inherit.Turn{})
	state := plan.Result
	NewWithT(t).Expect(plan.LeftOut.Problems()).NotTo(HaveOccurred(), fmt.Sprint(node))
	node.Labels, node.Annotations, node.Spec.Taints = state.Labels, state.Annotations, state.Taints
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(node)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return &unstructured.Unstructured{Object: object}
}

func nodeOf(t *testing.T, object *unstructured.Unstructured) inherit.Node {
	t.Helper()
	node := &corev1.Node{}
	NewWithT(t).Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, node)).To(Succeed())
	return inherit.ReadNode(node, time.Now())
}
