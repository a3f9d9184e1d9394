// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownership"
)

// schema is that of a Machine, a MachineSet and a control plane of either contract, as far as they inherit.
const schema = `
types:
- name: object
  map:
    fields:
    - {name: metadata, type: {namedType: metadata}}
    - {name: spec, type: {namedType: spec}}
- name: metadata
  map:
    fields:
    - {name: labels, type: {map: {elementType: {scalar: string}}}}
    - {name: annotations, type: {map: {elementType: {scalar: string}}}}
- name: spec
  map:
    fields:
    - {name: taints, type: {namedType: taints}}
    - {name: template, type: {namedType: object}}
    - {name: deletion, type: {namedType: deletion}}
    - {name: machineTemplate, type: {namedType: machineTemplate}}
- name: deletion
  map:
    fields:
    - {name: nodeDrainTimeoutSeconds, type: {scalar: numeric}}
    - {name: nodeDeletionTimeoutSeconds, type: {scalar: numeric}}
- name: machineTemplate
  map:
    fields:
    - {name: metadata, type: {namedType: metadata}}
    - {name: spec, type: {namedType: spec}}
    - {name: taints, type: {namedType: taints}}
    - {name: nodeDrainTimeout, type: {scalar: string}}
- name: taints
  list: {elementType: {namedType: taint}, elementRelationship: associative, keys: [effect, key]}
- name: taint
  map:
    fields:
    - {name: key, type: {scalar: string}}
    - {name: value, type: {scalar: string}}
    - {name: effect, type: {scalar: string}}
    - {name: propagation, type: {scalar: string}}
`

// sameVersion converts nothing: labels, annotations and taints have the same paths in every version.
type sameVersion struct{}

func (sameVersion) Convert(object *typed.TypedValue, _ fieldpath.APIVersion) (*typed.TypedValue, error) {
	return object, nil
}
func (sameVersion) IsMissingVersionError(error) bool { return false }

// applied is what the API server makes of the plan's apply configuration: the object and who owns what of it.
func applied(t *testing.T, plan *ownership.Plan, raw []byte) (object []byte, owners map[string]string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	parser, err := typed.NewParser(schema)
	Expect(err).NotTo(HaveOccurred())
	read := func(document []byte) *typed.TypedValue {
		var object any
		Expect(json.Unmarshal(document, &object)).To(Succeed())
		value, err := parser.Type("object").FromUnstructured(object)
		Expect(err).NotTo(HaveOccurred())
		return value
	}
	config, err := plan.ApplyConfiguration(version, "Machine", &metav1.ObjectMeta{})
	Expect(err).NotTo(HaveOccurred())
	delete(config.Object, "apiVersion")
	delete(config.Object, "kind")

	managers := fieldpath.ManagedFields{}
	for _, entry := range managedFieldsOf(t, raw) {
		managers[entry.Manager] = fieldpath.NewVersionedSet(setOf(t, entry), version, entry.Operation == metav1.ManagedFieldsOperationApply)
	}
	live := read(withoutManagedFields(t, raw))
	updater := merge.Updater{Converter: sameVersion{}} //nolint:staticcheck // the API server sets it as well
	merged, managers, err := updater.Apply(live, read(asJSON(t, config.Object)), version, managers, ownership.Manager, true)
	Expect(err).NotTo(HaveOccurred())
	if merged == nil {
		merged = live
	}
	owners = map[string]string{}
	for manager, set := range managers {
		owners[manager] = set.Set().String()
	}
	return asJSON(t, merged.AsValue().Unstructured()), owners
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
// owners (DESIGN.md §5), by the very library that the API server applies with.
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
