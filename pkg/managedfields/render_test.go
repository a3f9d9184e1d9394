// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

func TestApplyConfiguration(t *testing.T) {
	Expect := NewWithT(t).Expect
	o := machine(content{labels: "a=1,b=2,theirs=1,mine=1"}, ours(labelA), theirs("{'f:metadata': {'f:labels': {'f:b': {}, 'f:theirs': {}}}}"))
	o.SetName("m")
	o.SetNamespace("ns")
	o.SetUID("uid")
	o.SetResourceVersion("7")
	plan := planOf(t, o, fromOwner(content{labels: "a=1,b=1,theirs=1,new=1", annotations: "n=1", taints: "gpu=1:NoSchedule,z:NoExecute@OnInitialization"}.top()))
	config, err := plan.ApplyConfiguration(version, "Machine", o)
	Expect(err).NotTo(HaveOccurred())
	// With the UID an apply cannot create a deleted object again; with the resourceVersion it cannot restore removed entries.
	Expect(asJSON(t, config.Object)).To(MatchYAML(`
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: m, namespace: ns, uid: uid, resourceVersion: "7", labels: {a: "1", b: "1", new: "1"}, annotations: {n: "1"}}
spec: {taints: [{key: gpu, value: "1", effect: NoSchedule, propagation: Always}, {key: z, effect: NoExecute, propagation: OnInitialization}]}`))
	config, err = planOf(t, machine(content{labels: "a=1"}, ours(labelA)), fromOwner(content{}.top())).ApplyConfiguration(version, "Machine", o)
	Expect(err).NotTo(HaveOccurred())
	Expect(config.Object).NotTo(HaveKey("spec"))
	Expect(config.GetLabels()).To(BeEmpty(), "an apply without the label removes Heirloom's label")
}

// entry is the beginning of our managedFields entry; the fields follow.
const entry = `{"manager":"heirloom","operation":"Apply","apiVersion":"cluster.x-k8s.io/v1beta2","time":"2026-11-21T12:00:00Z","fieldsType":"FieldsV1","fieldsV1":`

// TestAgainstFieldManager checks the result of patches. This test shows that a patch has no operation that it does not need.
func TestPatch(t *testing.T) {
	const ab = `{"f:metadata":{"f:labels":{"f:a":{},"f:b":{}}}}}`
	null := machineSet(content{})
	null.Object["spec"] = map[string]any{"template": nil}
	for _, tc := range []struct {
		name    string
		object  *unstructured.Unstructured
		desired inherit.Object
		want    []string
	}{
		{
			name: "a missing map is created, with our entry", object: machine(content{}), desired: content{labels: "b=2,a=1"}.top(),
			want: []string{`{"op":"add","path":"/metadata/labels","value":{"a":"1","b":"2"}}`, `{"op":"add","path":"/metadata/managedFields","value":[` + entry + ab + `]}`},
		},
		{
			name: "the last label goes with its map and its entry", object: machine(content{labels: "a=1"}, ours(labelA)),
			want: []string{`{"op":"remove","path":"/metadata/labels"}`, `{"op":"add","path":"/metadata/managedFields","value":[]}`},
		},
		{
			name: "parents that are missing or null are created once", object: null, desired: content{labels: "a=1", taints: "gpu:NoSchedule"}.template(),
			want: []string{
				`{"op":"add","path":"/spec/template","value":{}}`, `{"op":"add","path":"/spec/template/metadata","value":{}}`, `{"op":"add","path":"/spec/template/metadata/labels","value":{"a":"1"}}`,
				`{"op":"add","path":"/spec/template/spec","value":{}}`, `{"op":"add","path":"/spec/template/spec/taints","value":[{"effect":"NoSchedule","key":"gpu","propagation":"Always"}]}`,
				`{"op":"add","path":"/metadata/managedFields","value":[` + entry + `{"f:spec":{"f:template":{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:taints":{"k:{\"effect\":\"NoSchedule\",\"key\":\"gpu\"}":{".":{},"f:effect":{},"f:key":{},"f:propagation":{}}}}}}}}]}`,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := planOf(t, tc.object, fromOwner(tc.desired))
			NewWithT(t).Expect(operations(t, plan, tc.object)).To(Equal(tc.want))
		})
	}
}

func TestPatchOfBrokenObjects(t *testing.T) {
	for raw, problem := range map[string]string{
		`{"metadata":{},"spec":"text"}`:          "reading the object: .spec",
		`{"metadata":{},"spec":{"template":[]}}`: "reading the object: .spec.template",
		`{`:                                      "unexpected end",
		`null`:                                   "reading the object: it is null",
	} {
		_, err := planOf(t, machineSet(content{}), fromOwner(content{labels: "a=1"}.template())).Patch([]byte(raw), version, now)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(problem)))
	}
}

// The fields below spec.machineTemplate, by contract.
const (
	newer = "metadata spec.taints spec.deletion.nodeDrainTimeoutSeconds spec.deletion.nodeDeletionTimeoutSeconds"
	older = "metadata taints nodeDrainTimeout"
)

func controlPlaneIn(o *unstructured.Unstructured, schema string) inherit.Object {
	return inherit.OfControlPlane(as(&inherit.ControlPlane{}, o), inherit.ControlPlaneLayout("v1beta2", func(path ...string) bool {
		return slices.Contains(strings.Fields(schema), strings.TrimPrefix(strings.Join(path, "."), "spec.machineTemplate."))
	}))
}
