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
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// below are the fields of spec.machineTemplate by each contract.
const (
	newer = "metadata spec.taints spec.deletion.nodeDrainTimeoutSeconds spec.deletion.nodeDeletionTimeoutSeconds"
	older = "metadata taints nodeDrainTimeout"
)

// controlPlane reads a document of a control plane whose kind has these fields.
func controlPlane(t *testing.T, text, fields string) inherit.Object {
	t.Helper()
	cp := &inherit.ControlPlane{}
	NewWithT(t).Expect(yaml.Unmarshal([]byte(text), cp)).To(Succeed())
	return inherit.OfControlPlane(cp, inherit.ControlPlaneLayout("v1beta2", func(path ...string) bool {
		return slices.Contains(strings.Fields(fields), strings.TrimPrefix(strings.Join(path, "."), "spec.machineTemplate."))
	}))
}

// machineSet reads a document of a MachineSet of v1beta2.
func machineSet(t *testing.T, text string) inherit.Object {
	t.Helper()
	ms := &clusterv1.MachineSet{}
	NewWithT(t).Expect(yaml.Unmarshal([]byte(text), ms)).To(Succeed())
	ms.APIVersion = version
	return inherit.OfMachineSet(ms)
}

// inherits is content at both places; drain and deletion are timeouts in seconds.
type inherits struct {
	top, template   content
	drain, deletion *int32
}

func (i inherits) object() inherit.Object {
	template := i.template.content()
	template.Fields = inherit.Fields{Seconds: inherit.Seconds{inherit.NodeDrainTimeout: i.drain, inherit.NodeDeletionTimeout: i.deletion}}
	return inherit.Object{Top: i.top.content(), Template: &template}
}

// withoutOwners leaves out operations on managed fields.
func withoutOwners(lines []string) []string {
	return slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, `"path":"/metadata/managedFields`) })
}

// withoutNulls is what the API server makes of a document: it takes null for what is not there, and metadata always are.
func withoutNulls(t *testing.T, raw []byte) []byte {
	t.Helper()
	var object map[string]any
	NewWithT(t).Expect(json.Unmarshal(raw, &object)).To(Succeed())
	prune(object)
	if object["metadata"] == nil {
		object["metadata"] = map[string]any{}
	}
	return asJSON(t, object)
}

func prune(object map[string]any) {
	maps.DeleteFunc(object, func(_ string, value any) bool { return value == nil })
	for _, value := range object {
		if nested, ok := value.(map[string]any); ok {
			prune(nested)
		}
	}
}

// TestControlPlaneOfEachContract holds where a control plane inherits, and that an apply comes to the same.
func TestControlPlaneOfEachContract(t *testing.T) {
	gets := inherits{top: content{labels: "a=1"}, template: content{labels: "b=2", annotations: "note=1", taints: "gpu:NoSchedule"}, drain: new(int32(90)), deletion: new(int32(0))}.object()
	const gpu = `[{"effect":"NoSchedule","key":"gpu","propagation":"Always"}]`
	for _, tc := range []struct {
		name, has string
		want      []string
		result    string
	}{
		{
			name: "the v1beta2 contract has fields in spec.machineTemplate.spec", has: newer,
			want: []string{
				`{"op":"add","path":"/metadata/labels","value":{"a":"1"}}`,
				`{"op":"add","path":"/spec/machineTemplate/metadata","value":{}}`,
				`{"op":"add","path":"/spec/machineTemplate/metadata/labels","value":{"b":"2"}}`,
				`{"op":"add","path":"/spec/machineTemplate/metadata/annotations","value":{"note":"1"}}`,
				`{"op":"add","path":"/spec/machineTemplate/spec","value":{}}`,
				`{"op":"add","path":"/spec/machineTemplate/spec/taints","value":` + gpu + `}`,
				`{"op":"add","path":"/spec/machineTemplate/spec/deletion","value":{}}`,
				`{"op":"add","path":"/spec/machineTemplate/spec/deletion/nodeDrainTimeoutSeconds","value":90}`,
				`{"op":"add","path":"/spec/machineTemplate/spec/deletion/nodeDeletionTimeoutSeconds","value":0}`,
			},
			result: "{metadata: {labels: {a: '1'}}, spec: {machineTemplate: {metadata: {labels: {b: '2'}, annotations: {note: '1'}}, spec: {taints: " + gpu + ", deletion: {nodeDrainTimeoutSeconds: 90, nodeDeletionTimeoutSeconds: 0}}}}}",
		},
		{
			name: "the v1beta1 contract has fields in spec.machineTemplate", has: older,
			want: []string{
				`{"op":"add","path":"/metadata/labels","value":{"a":"1"}}`,
				`{"op":"add","path":"/spec/machineTemplate/metadata","value":{}}`,
				`{"op":"add","path":"/spec/machineTemplate/metadata/labels","value":{"b":"2"}}`,
				`{"op":"add","path":"/spec/machineTemplate/metadata/annotations","value":{"note":"1"}}`,
				`{"op":"add","path":"/spec/machineTemplate/taints","value":` + gpu + `}`,
				`{"op":"add","path":"/spec/machineTemplate/nodeDrainTimeout","value":"1m30s"}`,
			},
			result: "{metadata: {labels: {a: '1'}}, spec: {machineTemplate: {metadata: {labels: {b: '2'}, annotations: {note: '1'}}, taints: " + gpu + ", nodeDrainTimeout: 1m30s}}}",
		},
		{
			name: "a kind with neither has metadata", has: "",
			want:   []string{`{"op":"add","path":"/metadata/labels","value":{"a":"1"}}`},
			result: "{metadata: {labels: {a: '1'}}, spec: {machineTemplate: {}}}",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			const before = "{metadata: {}, spec: {machineTemplate: {}}}"
			fields := entries(theirs("{'f:spec': {'f:machineTemplate': {}}}"))
			raw := document(t, before, fields)
			plan := newPlan(t, controlPlane(t, before, tc.has), gets, fields)

			Expect(withoutOwners(operations(t, plan, raw))).To(Equal(tc.want))
			admitted := patched(t, plan, raw)
			Expect(withoutManagedFields(t, admitted)).To(MatchYAML(tc.result))
			object, owners := applied(t, plan, raw)
			Expect(withoutNulls(t, object)).To(MatchYAML(tc.result), "by an apply")
			Expect(ownersOf(t, admitted)).To(Equal(owners), "its owners")

			again := newPlan(t, controlPlane(t, string(admitted), tc.has), gets, managedFieldsOf(t, admitted))
			Expect(again.Needed()).To(BeFalse(), "once is enough")
		})
	}
}

// TestWhatMayNotBeEmpty: Cluster API's CRDs forbid an empty template metadata and an empty deletion. They go with the last
// that was in them; the object's own metadata never do.
func TestWhatMayNotBeEmpty(t *testing.T) {
	const labels, drain = "'f:metadata': {'f:labels': {'f:a': {}}}", "'f:deletion': {'f:nodeDrainTimeoutSeconds': {}}"
	inTemplate := func(fields string) string { return "{'f:spec': {'f:template': {" + fields + "}}}" }
	inMachineTemplate := func(fields string) string { return "{'f:spec': {'f:machineTemplate': {" + fields + "}}}" }
	for _, tc := range []struct {
		name string
		// object is a MachineSet, or a control plane whose kind has these fields.
		object, has string
		ours        string
		theirs      string
		desired     inherits
		want        []string
		result      string
	}{
		{
			name: "the last label of spec.template.metadata goes with the metadata", ours: inTemplate(labels),
			object: "{metadata: {}, spec: {template: {metadata: {labels: {a: '1'}}, spec: {}}}}", theirs: inTemplate("'f:spec': {}"),
			want: []string{`{"op":"remove","path":"/spec/template/metadata"}`}, result: "{metadata: {}, spec: {template: {spec: {}}}}",
		},
		{
			name: "so do the last label and the last annotation, once", ours: inTemplate("'f:metadata': {'f:labels': {'f:a': {}}, 'f:annotations': {'f:note': {}}}"),
			object: "{metadata: {}, spec: {template: {metadata: {labels: {a: '1'}, annotations: {note: '1'}}, spec: {}}}}", theirs: inTemplate("'f:spec': {}"),
			want: []string{`{"op":"remove","path":"/spec/template/metadata"}`}, result: "{metadata: {}, spec: {template: {spec: {}}}}",
		},
		{
			name: "the last label of spec.machineTemplate.metadata goes with the metadata", has: newer, ours: inMachineTemplate(labels),
			object: "{metadata: {}, spec: {machineTemplate: {metadata: {labels: {a: '1'}}, spec: {}}}}", theirs: inMachineTemplate("'f:spec': {}"),
			want: []string{`{"op":"remove","path":"/spec/machineTemplate/metadata"}`}, result: "{metadata: {}, spec: {machineTemplate: {spec: {}}}}",
		},
		{
			name: "by the v1beta1 contract, too", has: older, ours: inMachineTemplate(labels + ", 'f:nodeDrainTimeout': {}"),
			object: "{metadata: {}, spec: {machineTemplate: {metadata: {labels: {a: '1'}}, nodeDrainTimeout: 1m30s, spec: {}}}}", theirs: inMachineTemplate("'f:spec': {}"),
			want:   []string{`{"op":"remove","path":"/spec/machineTemplate/metadata"}`, `{"op":"remove","path":"/spec/machineTemplate/nodeDrainTimeout"}`},
			result: "{metadata: {}, spec: {machineTemplate: {spec: {}}}}",
		},
		{
			name: "the object's own metadata stay, whatever is left of them", ours: "{" + labels + "}",
			object: "{metadata: {labels: {a: '1'}}, spec: {template: {}}}", theirs: "{'f:spec': {'f:template': {}}}",
			want: []string{`{"op":"remove","path":"/metadata/labels"}`}, result: "{metadata: {}, spec: {template: {}}}",
		},
		{
			name: "one of two labels goes alone", ours: inTemplate(labels),
			object: "{metadata: {}, spec: {template: {metadata: {labels: {a: '1', z: '1'}}}}}", theirs: inTemplate("'f:metadata': {'f:labels': {'f:z': {}}}"),
			want:   []string{`{"op":"add","path":"/spec/template/metadata/labels","value":{"z":"1"}}`},
			result: "{metadata: {}, spec: {template: {metadata: {labels: {z: '1'}}}}}",
		},
		{
			name: "the last label goes from beside an annotation", ours: inTemplate(labels),
			object: "{metadata: {}, spec: {template: {metadata: {labels: {a: '1'}, annotations: {note: '1'}}}}}", theirs: inTemplate("'f:metadata': {'f:annotations': {'f:note': {}}}"),
			want:   []string{`{"op":"remove","path":"/spec/template/metadata/labels"}`},
			result: "{metadata: {}, spec: {template: {metadata: {annotations: {note: '1'}}}}}",
		},
		{
			name: "the last label goes as the first annotation comes", ours: inTemplate(labels), desired: inherits{template: content{annotations: "note=1"}},
			object: "{metadata: {}, spec: {template: {metadata: {labels: {a: '1'}}, spec: {}}}}", theirs: inTemplate("'f:spec': {}"),
			want:   []string{`{"op":"remove","path":"/spec/template/metadata/labels"}`, `{"op":"add","path":"/spec/template/metadata/annotations","value":{"note":"1"}}`},
			result: "{metadata: {}, spec: {template: {metadata: {annotations: {note: '1'}}, spec: {}}}}",
		},
		{
			name: "deletion and metadata go together", ours: inTemplate(labels + ", 'f:spec': {" + drain + "}"),
			object: "{metadata: {}, spec: {template: {metadata: {labels: {a: '1'}}, spec: {deletion: {nodeDrainTimeoutSeconds: 90}, taints: [{key: z, effect: NoExecute, propagation: Always}]}}}}",
			theirs: inTemplate(`'f:spec': {'f:taints': {'k:{"effect":"NoExecute","key":"z"}': {'.': {}, 'f:effect': {}, 'f:key': {}, 'f:propagation': {}}}}`),
			want:   []string{`{"op":"remove","path":"/spec/template/metadata"}`, `{"op":"remove","path":"/spec/template/spec/deletion"}`},
			result: "{metadata: {}, spec: {template: {spec: {taints: [{key: z, effect: NoExecute, propagation: Always}]}}}}",
		},
		{
			name: "so they do in a control plane", has: newer, ours: inMachineTemplate(labels + ", 'f:spec': {" + drain + "}"),
			object: "{metadata: {}, spec: {machineTemplate: {metadata: {labels: {a: '1'}}, spec: {deletion: {nodeDrainTimeoutSeconds: 90}, taints: [{key: z, effect: NoExecute, propagation: Always}]}}}}",
			theirs: inMachineTemplate(`'f:spec': {'f:taints': {'k:{"effect":"NoExecute","key":"z"}': {'.': {}, 'f:effect': {}, 'f:key': {}, 'f:propagation': {}}}}`),
			want:   []string{`{"op":"remove","path":"/spec/machineTemplate/metadata"}`, `{"op":"remove","path":"/spec/machineTemplate/spec/deletion"}`},
			result: "{metadata: {}, spec: {machineTemplate: {spec: {taints: [{key: z, effect: NoExecute, propagation: Always}]}}}}",
		},
		{
			name: "a timeout goes as another comes", ours: inTemplate("'f:spec': {" + drain + "}"), desired: inherits{deletion: new(int32(1))},
			object: "{metadata: {}, spec: {template: {spec: {deletion: {nodeDrainTimeoutSeconds: 90}}}}}", theirs: inTemplate("'f:spec': {}"),
			want:   []string{`{"op":"remove","path":"/spec/template/spec/deletion/nodeDrainTimeoutSeconds"}`, `{"op":"add","path":"/spec/template/spec/deletion/nodeDeletionTimeoutSeconds","value":1}`},
			result: "{metadata: {}, spec: {template: {spec: {deletion: {nodeDeletionTimeoutSeconds: 1}}}}}",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			fields := entries(ours(tc.ours), managed("user", metav1.ManagedFieldsOperationUpdate, tc.theirs))
			raw := document(t, tc.object, fields)
			current := machineSet(t, tc.object)
			if tc.has != "" {
				current = controlPlane(t, tc.object, tc.has)
			}
			plan := newPlan(t, current, tc.desired.object(), fields)

			Expect(withoutOwners(operations(t, plan, raw))).To(Equal(tc.want))
			admitted := patched(t, plan, raw)
			Expect(withoutManagedFields(t, admitted)).To(MatchYAML(tc.result))
			object, owners := applied(t, plan, raw)
			Expect(withoutNulls(t, object)).To(MatchYAML(tc.result), "by an apply")
			Expect(ownersOf(t, admitted)).To(Equal(owners), "its owners")
		})
	}
}

// Not even metadata of which nothing else is known are taken away.
func TestOwnMetadataStay(t *testing.T) {
	plan := newPlan(t, content{labels: "a=1"}.top(), content{}.top(), entries(ours(labelA)))
	lines := operations(t, plan, []byte(`{"metadata":{"labels":{"a":"1"}},"spec":{}}`))
	NewWithT(t).Expect(withoutOwners(lines)).To(Equal([]string{`{"op":"remove","path":"/metadata/labels"}`}))
}
