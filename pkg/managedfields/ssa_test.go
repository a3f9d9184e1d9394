// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// applied is what the API server makes of the plan's apply configuration: the object and who owns what of it.
func applied(t *testing.T, plan *managedfields.Plan, raw []byte) (object []byte, owners map[string]string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	managers, err := fieldManagersOnce()
	Expect(err).NotTo(HaveOccurred())
	live := &unstructured.Unstructured{}
	Expect(json.Unmarshal(raw, &live.Object)).To(Succeed())
	live.SetAPIVersion(version)
	live.SetKind(kindOf(live))
	config, err := plan.ApplyConfiguration(version, live.GetKind(), live)
	Expect(err).NotTo(HaveOccurred())

	result, err := managers.applied(live, config, managedfields.Manager, true)
	Expect(err).NotTo(HaveOccurred())
	unstructured.RemoveNestedField(result.Object, "apiVersion")
	unstructured.RemoveNestedField(result.Object, "kind")
	owners = ownersOf(t, asJSON(t, result.Object))
	if len(live.GetManagedFields()) == 0 {
		delete(owners, "before-first-apply") // to whom API servers give what nobody has claimed yet
	}
	return withoutManagedFields(t, asJSON(t, result.Object)), owners
}

// kindOf returns a kind that has what the object has.
func kindOf(object *unstructured.Unstructured) string {
	for field, kind := range map[string]string{"template": "MachineSet", "machineTemplate": anyControlPlane} {
		if _, has, _ := unstructured.NestedMap(object.Object, "spec", field); has {
			return kind
		}
	}
	return "Machine"
}

func setOf(t *testing.T, entry metav1.ManagedFieldsEntry) *fieldpath.Set {
	t.Helper()
	set := fieldpath.NewSet()
	NewWithT(t).Expect(set.FromJSON(entry.FieldsV1.GetRawReader())).To(Succeed())
	return set
}

// ownersOf says who owns what by the managed fields of a document.
func ownersOf(t *testing.T, raw []byte) map[string]string {
	t.Helper()
	owners := map[string]string{}
	for _, entry := range managedFieldsOf(t, raw) {
		owners[entry.Manager] = setOf(t, entry).String()
	}
	return owners
}

// TestAdmissionEqualsApply: what the webhook answers and what the loop applies lead to the same object with the same
// owners (docs/design.md §5), by the very library that the API server applies with.
func TestAdmissionEqualsApply(t *testing.T) {
	const gpuOf, gpuWithValue = `{'f:spec': {'f:taints': {'k:{"effect":"NoSchedule","key":"gpu"}': {'.': {}, 'f:effect': {}, 'f:key': {}, 'f:propagation': {}}}}}`,
		`{'f:spec': {'f:taints': {'k:{"effect":"NoSchedule","key":"gpu"}': {'.': {}, 'f:effect': {}, 'f:key': {}, 'f:propagation': {}, 'f:value': {}}}}}`
	for _, tc := range []struct {
		name             string
		current, desired content
		fields           []metav1.ManagedFieldsEntry
	}{
		{name: "something is added to nothing", desired: content{"a=1", "b=2", "gpu=1:NoSchedule"}},
		{name: "something is added to what others have", current: content{"z=1", "y=2", "x:NoExecute"}, desired: content{"a=1", "b=2", "gpu=1:NoSchedule"}, fields: entries(theirs("{'f:metadata': {'f:labels': {'f:z': {}}}}"))},
		{name: "the right value stays whose it is", current: content{labels: "a=1", taints: "gpu:NoSchedule"}, desired: content{labels: "a=1", taints: "gpu:NoSchedule"}, fields: entries(theirs(labelA))},
		{name: "nothing is declared any more", current: content{labels: "a=1,z=1", taints: "gpu=1:NoSchedule"}, fields: entries(ours(gpuWithValue), theirs("{'f:metadata': {'f:labels': {'f:a': {}, 'f:z': {}}}}"))},
		{name: "nothing is declared any more, and another owns it too", current: content{labels: "a=1", taints: "gpu=1:NoSchedule"}, fields: entries(ours(gpuWithValue), theirs(gpuWithValue))},
		{name: "a label's value is taken", current: content{labels: "a=2"}, desired: content{labels: "a=1"}, fields: entries(theirs(labelA))},
		{name: "a label's value is taken from two", current: content{labels: "a=2"}, desired: content{labels: "a=1"}, fields: entries(theirs(labelA), managed("user", "Update", "{'f:metadata': {'f:labels': {'.': {}, 'f:a': {}, 'f:z': {}}}}"))},
		{name: "our own label's value changes", current: content{labels: "a=2"}, desired: content{labels: "a=1"}, fields: entries(ours(labelA))},
		{name: "a taint's value is taken", current: content{taints: "gpu=2:NoSchedule"}, desired: content{taints: "gpu=1:NoSchedule"}, fields: entries(theirs(gpuWithValue))},
		{name: "a taint gets a value", current: content{taints: "gpu:NoSchedule"}, desired: content{taints: "gpu=1:NoSchedule"}, fields: entries(theirs(gpuOf))},
		{name: "a taint's propagation is taken", current: content{taints: "gpu:NoSchedule@OnInitialization"}, desired: content{taints: "gpu:NoSchedule"}, fields: entries(theirs(gpuOf))},
		{name: "a taint's propagation is taken, its equal value is not", current: content{taints: "gpu=1:NoSchedule@OnInitialization"}, desired: content{taints: "gpu=1:NoSchedule"}, fields: entries(theirs(gpuWithValue))},
		{name: "our own taint loses its value", current: content{taints: "gpu=1:NoSchedule"}, desired: content{taints: "gpu:NoSchedule"}, fields: entries(ours(gpuWithValue))},
		{name: "another's taint with a value is declared without one", current: content{taints: "gpu=1:NoSchedule"}, desired: content{taints: "gpu:NoSchedule"}, fields: entries(theirs(gpuWithValue))},
		{name: "nobody's taint with a value is declared without one", current: content{taints: "gpu=1:NoSchedule"}, desired: content{taints: "gpu:NoSchedule"}},
		{name: "one taint goes, another comes", current: content{taints: "gpu=1:NoSchedule"}, desired: content{taints: "gpu=1:NoExecute"}, fields: entries(ours(gpuWithValue))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, at := range []struct {
				name             string
				current, desired inherit.Object
				wrap             func(string) string
			}{
				{"at the top", tc.current.top(), tc.desired.top(), func(s string) string { return s }},
				{"in the template", tc.current.template(), tc.desired.template(), func(s string) string { return "{'f:spec': {'f:template': " + s + "}}" }},
			} {
				t.Run(at.name, func(t *testing.T) {
					Expect := NewWithT(t).Expect
					fields := slices.Clone(tc.fields)
					for i := range fields {
						fields[i] = managed(fields[i].Manager, fields[i].Operation, at.wrap(fields[i].FieldsV1.GetRawString()))
					}
					raw := document(t, object(t, tc.current, at.current.Template != nil), fields)
					plan := newPlan(t, at.current, at.desired, fields)

					admitted := patched(t, plan, raw)
					object, owners := applied(t, plan, raw)

					Expect(canonical(t, withoutManagedFields(t, admitted))).To(Equal(canonical(t, object)), "the object")
					Expect(ownersOf(t, admitted)).To(Equal(owners), "its owners")
				})
			}
		})
	}
}

// object is the document of an object with this content.
func object(t *testing.T, has content, inTemplate bool) string {
	t.Helper()
	metadata, spec := map[string]any{}, map[string]any{}
	for name, m := range map[string]map[string]string{"labels": pairs(has.labels), "annotations": pairs(has.annotations)} {
		if len(m) > 0 {
			metadata[name] = m
		}
	}
	if taints := declared(has.taints); len(taints) > 0 {
		spec["taints"] = taints
	}
	whole := map[string]any{"metadata": metadata, "spec": spec}
	if inTemplate {
		whole = map[string]any{"metadata": map[string]any{}, "spec": map[string]any{"template": whole}}
	}
	return string(asJSON(t, whole))
}

// canonical writes a document down with one line for each value, without empty maps and lists, and with lists sorted:
// neither matters to who reads the object.
func canonical(t *testing.T, raw []byte) []string {
	t.Helper()
	var whole any
	NewWithT(t).Expect(json.Unmarshal(raw, &whole)).To(Succeed())
	lines := flatten("", whole)
	slices.Sort(lines)
	return lines
}

func flatten(path string, value any) []string {
	var lines []string
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			lines = append(lines, flatten(path+"/"+key, value[key])...)
		}
	case []any:
		for _, element := range value {
			lines = append(lines, path+"[] "+strings.Join(flatten("", element), " "))
		}
	case string:
		lines = append(lines, path+"="+value)
	}
	return lines
}
