// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// entry begins every entry of managedFields that is ours; its end are the fields.
const entry = `{"manager":"heirloom","operation":"Apply","apiVersion":"cluster.x-k8s.io/v1beta2","time":"2026-11-21T12:00:00Z","fieldsType":"FieldsV1","fieldsV1":`

// TestPatch holds the exact operations, in order, and the object that an API server makes of them.
func TestPatch(t *testing.T) {
	for _, tc := range []struct {
		name             string
		current, desired inherit.Object
		object           string
		fields           []metav1.ManagedFieldsEntry
		want             []string
		// result is the object without managedFields; left out where nothing changes.
		result string
	}{
		{
			name:    "a missing map is created, with our entry",
			current: content{}.top(), desired: content{labels: "b=2,a=1"}.top(),
			object: "{metadata: {name: m}}",
			want: []string{
				`{"op":"add","path":"/metadata/labels","value":{"a":"1","b":"2"}}`,
				`{"op":"add","path":"/metadata/managedFields","value":[` + entry + `{"f:metadata":{"f:labels":{"f:a":{},"f:b":{}}}}}]}`,
			},
			result: "{metadata: {name: m, labels: {a: '1', b: '2'}}}",
		},
		{
			name:    "a map is replaced as a whole, our entry comes behind older ones",
			current: content{labels: "mine=1"}.top(), desired: content{labels: "a=1"}.top(),
			object: "{metadata: {labels: {mine: '1'}}}", fields: entries(theirs("{'f:metadata': {'f:labels': {'f:mine': {}}}}")),
			want: []string{
				`{"op":"add","path":"/metadata/labels","value":{"a":"1","mine":"1"}}`,
				`{"op":"add","path":"/metadata/managedFields/1","value":` + entry + `{"f:metadata":{"f:labels":{"f:a":{}}}}}}`,
			},
			result: "{metadata: {labels: {mine: '1', a: '1'}}}",
		},
		{
			name:    "an identical entry is not written again",
			current: content{labels: "a=1"}.top(), desired: content{labels: "a=1"}.top(),
			object: "{metadata: {labels: {a: '1'}}}", fields: entries(ours(labelA)),
		},
		{
			name:    "what was removed comes back without a new entry",
			current: content{}.top(), desired: content{labels: "a=1"}.top(),
			object: "{metadata: {}}", fields: entries(ours(labelA)),
			want:   []string{`{"op":"add","path":"/metadata/labels","value":{"a":"1"}}`},
			result: "{metadata: {labels: {a: '1'}}}",
		},
		{
			name:    "the last label goes with its map and its entry",
			current: content{labels: "a=1"}.top(), desired: content{}.top(),
			object: "{metadata: {labels: {a: '1'}}}", fields: entries(ours(labelA)),
			want:   []string{`{"op":"remove","path":"/metadata/labels"}`, `{"op":"add","path":"/metadata/managedFields","value":[]}`},
			result: "{metadata: {}}",
		},
		{
			name:    "a value is taken from its manager, whose entry goes when nothing is left of it",
			current: content{labels: "a=2"}.top(), desired: content{labels: "a=1"}.top(),
			object: "{metadata: {labels: {a: '2'}}}", fields: entries(theirs(labelA)),
			want: []string{
				`{"op":"add","path":"/metadata/labels","value":{"a":"1"}}`,
				`{"op":"add","path":"/metadata/managedFields","value":[` + entry + `{"f:metadata":{"f:labels":{"f:a":{}}}}}]}`,
			},
			result: "{metadata: {labels: {a: '1'}}}",
		},
		{
			name:    "a value is taken from its manager, the rest of whose entry stays",
			current: content{labels: "a=2"}.top(), desired: content{labels: "a=1"}.top(),
			object: "{metadata: {labels: {a: '2'}}}", fields: entries(ours("{}"), managed("user", "Update", "{'f:metadata': {'f:labels': {'f:a': {}, 'f:z': {}}}}")),
			want: []string{
				`{"op":"add","path":"/metadata/labels","value":{"a":"1"}}`,
				`{"op":"add","path":"/metadata/managedFields","value":[` + entry + `{"f:metadata":{"f:labels":{"f:a":{}}}}},{"manager":"user","operation":"Update","apiVersion":"cluster.x-k8s.io/v1beta2","time":"2026-11-21T11:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{"f:z":{}}}}}]}`,
			},
			result: "{metadata: {labels: {a: '1'}}}",
		},
		{
			name:    "a taint is owned as an element of its list",
			current: content{taints: "z:NoExecute"}.top(), desired: content{taints: "gpu=1:NoSchedule"}.top(),
			object: "{metadata: {}, spec: {taints: [{key: z, effect: NoExecute, propagation: Always}]}}",
			want: []string{
				`{"op":"add","path":"/spec/taints","value":[{"effect":"NoExecute","key":"z","propagation":"Always"},{"effect":"NoSchedule","key":"gpu","propagation":"Always","value":"1"}]}`,
				`{"op":"add","path":"/metadata/managedFields","value":[` + entry + `{"f:spec":{"f:taints":{"k:{\"effect\":\"NoSchedule\",\"key\":\"gpu\"}":{".":{},"f:effect":{},"f:key":{},"f:propagation":{},"f:value":{}}}}}}]}`,
			},
			result: "{metadata: {}, spec: {taints: [{key: z, effect: NoExecute, propagation: Always}, {key: gpu, value: '1', effect: NoSchedule, propagation: Always}]}}",
		},
		{
			name:    "parents that are missing or null are created once",
			current: content{}.template(), desired: content{labels: "a=1", taints: "gpu:NoSchedule"}.template(),
			object: "{metadata: {}, spec: {template: null}}",
			want: []string{
				`{"op":"add","path":"/spec/template","value":{}}`,
				`{"op":"add","path":"/spec/template/metadata","value":{}}`,
				`{"op":"add","path":"/spec/template/metadata/labels","value":{"a":"1"}}`,
				`{"op":"add","path":"/spec/template/spec","value":{}}`,
				`{"op":"add","path":"/spec/template/spec/taints","value":[{"effect":"NoSchedule","key":"gpu","propagation":"Always"}]}`,
				`{"op":"add","path":"/metadata/managedFields","value":[` + entry + `{"f:spec":{"f:template":{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:taints":{"k:{\"effect\":\"NoSchedule\",\"key\":\"gpu\"}":{".":{},"f:effect":{},"f:key":{},"f:propagation":{}}}}}}}}]}`,
			},
			result: "{metadata: {}, spec: {template: {metadata: {labels: {a: '1'}}, spec: {taints: [{key: gpu, effect: NoSchedule, propagation: Always}]}}}}",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			raw := document(t, tc.object, tc.fields)
			plan := newPlan(t, tc.current, tc.desired, tc.fields)
			Expect(operations(t, plan, raw)).To(Equal(tc.want))
			if tc.result != "" {
				Expect(withoutManagedFields(t, patched(t, plan, raw))).To(MatchYAML(tc.result))
			}
		})
	}
}

// The API server keeps entries by operation, second and manager. Ours has to stand in its place among them, or the next
// write would sort the list and store a new version.
func TestEntriesStayInTheAPIServersOrder(t *testing.T) {
	const labelZ = "{'f:metadata': {'f:labels': {'f:z': {}}}}"
	at := func(entry metav1.ManagedFieldsEntry, after time.Duration) metav1.ManagedFieldsEntry {
		entry.Time = &metav1.Time{Time: now.Add(after)}
		return entry
	}
	timeless := managed("timeless", "Apply", labelZ)
	timeless.Time = nil
	for _, tc := range []struct {
		name             string
		current, desired content
		fields           []metav1.ManagedFieldsEntry
		want             []string
	}{
		{
			name: "a new entry comes behind older applies and before updates", desired: content{labels: "a=1"},
			fields: entries(timeless, at(theirs(labelZ), -time.Hour), at(managed("user", "Update", labelZ), -time.Hour)),
			want:   []string{"timeless", "capi-machineset", "heirloom", "user"},
		},
		{
			name: "a new entry comes before newer applies", desired: content{labels: "a=1"},
			fields: entries(at(theirs(labelZ), time.Hour), managed("user", "Update", labelZ)),
			want:   []string{"heirloom", "capi-machineset", "user"},
		},
		{
			name: "within a second the manager's name decides", desired: content{labels: "a=1"},
			fields: entries(at(theirs(labelZ), time.Millisecond), at(managed("zorro", "Apply", labelZ), 0)),
			want:   []string{"capi-machineset", "heirloom", "zorro"},
		},
		{
			name: "an entry that changes moves to its new place", desired: content{labels: "a=1,b=2"}, current: content{labels: "a=1"},
			fields: entries(at(ours(labelA), -time.Hour), at(theirs(labelZ), -time.Minute), managed("user", "Update", labelZ)),
			want:   []string{"capi-machineset", "heirloom", "user"},
		},
		{
			name: "entries of which nothing is left go, wherever they stand", current: content{labels: "a=2"}, desired: content{labels: "a=1"},
			fields: entries(managed("one", "Apply", labelA), managed("two", "Apply", labelZ), managed("three", "Update", labelA), managed("two", "Update", labelZ)),
			want:   []string{"two", "heirloom", "two"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			raw := document(t, "{metadata: {labels: {a: '2'}}}", tc.fields)
			var managers []string
			for _, entry := range managedFieldsOf(t, patched(t, newPlan(t, tc.current.top(), tc.desired.top(), tc.fields), raw)) {
				managers = append(managers, entry.Manager)
			}
			NewWithT(t).Expect(managers).To(Equal(tc.want))
		})
	}
}

func TestPatchOfWhatIsNoObject(t *testing.T) {
	for _, tc := range []struct{ name, raw, problem string }{
		{name: "a place above that is a text", raw: `{"metadata":{},"spec":"text"}`, problem: "spec accessor"},
		{name: "a place above that is a list", raw: `{"metadata":{},"spec":{"template":[]}}`, problem: "spec.template accessor error"},
		{name: "no JSON at all", raw: `{`, problem: "unexpected end"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := newPlan(t, content{}.template(), content{labels: "a=1"}.template(), nil)
			_, err := plan.Patch([]byte(tc.raw), version, now)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tc.problem)))
		})
	}
}

// To patch again what has been patched changes nothing, and what is inherited no more leaves no trace.
func TestThereAndBack(t *testing.T) {
	Expect := NewWithT(t).Expect
	has, gets := content{labels: "mine=1,a=2", annotations: "n=1", taints: "z:NoExecute"}, content{labels: "a=1,b=2", annotations: "m=1", taints: "gpu=1:NoSchedule"}
	raw := document(t, "{metadata: {labels: {mine: '1', a: '2'}, annotations: {n: '1'}}, spec: {taints: [{key: z, effect: NoExecute, propagation: Always}]}}", entries(theirs(labelA)))

	there := patched(t, newPlan(t, has.top(), gets.top(), entries(theirs(labelA))), raw)
	carries := content{labels: "mine=1,a=1,b=2", annotations: "n=1,m=1", taints: "z:NoExecute,gpu=1:NoSchedule"}
	fields := managedFieldsOf(t, there)
	Expect(operations(t, newPlan(t, carries.top(), gets.top(), fields), there)).To(BeEmpty())

	back := patched(t, newPlan(t, carries.top(), content{}.top(), fields), there)
	Expect(back).To(MatchYAML("{metadata: {labels: {mine: '1'}, annotations: {n: '1'}, managedFields: []}, spec: {taints: [{key: z, effect: NoExecute, propagation: Always}]}}"))
}
