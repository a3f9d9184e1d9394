// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	jsonpatch "gopkg.in/evanphx/json-patch.v4" // what the API server applies an admission response with
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

const version = "cluster.x-k8s.io/v1beta2"

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// content is the content of one place in short form: "a=1,b=2" and "gpu=true:NoSchedule,b:NoExecute@OnInitialization".
type content struct{ labels, annotations, taints string }

func (c content) content() inherit.Content {
	return inherit.Content{Labels: pairs(c.labels), Annotations: pairs(c.annotations), Taints: declared(c.taints)}
}

func (c content) top() inherit.Object {
	return inherit.Object{Layout: inherit.MachineLayout, Top: c.content()}
}

func (c content) template() inherit.Object {
	below := c.content()
	return inherit.Object{Layout: inherit.WorkersLayout, Template: &below}
}

func pairs(s string) map[string]string {
	var m map[string]string
	for entry := range strings.SplitSeq(s, ",") {
		if key, value, _ := strings.Cut(entry, "="); key != "" {
			if m == nil {
				m = map[string]string{}
			}
			m[key] = value
		}
	}
	return m
}

func declared(s string) []clusterv1.MachineTaint {
	var taints []clusterv1.MachineTaint
	for entry := range strings.SplitSeq(s, ",") {
		text, propagation, ok := strings.Cut(entry, "@")
		if !ok {
			propagation = "Always"
		}
		if t, err := taint.Parse(text); err == nil {
			taints = append(taints, clusterv1.MachineTaint{
				Key: t.Key, Value: t.Value, Effect: t.Effect, Propagation: clusterv1.MachineTaintPropagation(propagation),
			})
		}
	}
	return taints
}

// managed is an entry of metadata.managedFields; fields is YAML.
func managed(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	raw, err := yaml.YAMLToJSON([]byte(fields))
	if err != nil {
		panic(err)
	}
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, APIVersion: version, FieldsType: "FieldsV1",
		Time: &metav1.Time{Time: now.Add(-time.Hour)}, FieldsV1: metav1.NewFieldsV1(string(raw)),
	}
}

func ours(fields string) metav1.ManagedFieldsEntry {
	return managed(managedfields.Manager, metav1.ManagedFieldsOperationApply, fields)
}

func theirs(fields string) metav1.ManagedFieldsEntry {
	return managed("capi-machineset", metav1.ManagedFieldsOperationApply, fields)
}

func entries(all ...metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry { return all }

// document is an object of Cluster API as a request has it: YAML, and its managed fields.
func document(t *testing.T, text string, fields []metav1.ManagedFieldsEntry) []byte {
	t.Helper()
	Expect := NewWithT(t).Expect
	object := map[string]any{}
	Expect(yaml.Unmarshal([]byte(text), &object)).To(Succeed())
	if len(fields) > 0 {
		metadata, ok := object["metadata"].(map[string]any)
		Expect(ok).To(BeTrue(), "the document has no metadata")
		metadata["managedFields"] = fields
	}
	raw, err := json.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
	return raw
}

// operations returns the patch as the API server gets it, one operation in a line.
func operations(t *testing.T, plan *managedfields.Plan, raw []byte) []string {
	t.Helper()
	patch, err := plan.Patch(raw, version, now)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var lines []string
	for i := range patch {
		lines = append(lines, patch[i].Json())
	}
	return lines
}

// patched applies the patch the way the API server does.
func patched(t *testing.T, plan *managedfields.Plan, raw []byte) []byte {
	t.Helper()
	Expect := NewWithT(t).Expect
	lines := operations(t, plan, raw)
	if len(lines) == 0 {
		return raw
	}
	decoded, err := jsonpatch.DecodePatch([]byte("[" + strings.Join(lines, ",") + "]"))
	Expect(err).NotTo(HaveOccurred())
	result, err := decoded.Apply(raw)
	Expect(err).NotTo(HaveOccurred())
	return result
}

func newPlan(t *testing.T, current, desired inherit.Object, fields []metav1.ManagedFieldsEntry) *managedfields.Plan {
	t.Helper()
	return planOf(t, current, fromOwner(desired), fields)
}

func planOf(t *testing.T, current inherit.Object, decided inherit.Decision, fields []metav1.ManagedFieldsEntry) *managedfields.Plan {
	t.Helper()
	plan, err := managedfields.New(child(fields), current, decided, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return plan
}

// fromOwner is the decision about an object whose owner is known, orphan that about one which names none.
func fromOwner(desired inherit.Object) inherit.Decision {
	return inherit.Decision{Outcome: inherit.Inherits, Desired: desired}
}

func orphan(desired inherit.Object) inherit.Decision {
	return inherit.Decision{Outcome: inherit.NoOwner, Desired: desired}
}

// annotate makes these taints of a Machine's those that it declares by annotation.
func annotate(c *inherit.Content, annotated []clusterv1.MachineTaint) {
	c.Claims = map[string]inherit.Claim{}
	for _, t := range annotated {
		c.Claims[taint.MachineID(t).String()] = inherit.Default
	}
	for _, t := range c.Taints { // what is typed wins
		delete(c.Claims, taint.MachineID(t).String())
	}
	c.Taints = taint.Merge(c.Taints, annotated)
}

// child is an object that was created long ago.
func child(fields []metav1.ManagedFieldsEntry) metav1.Object {
	return &metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: now.Add(-24 * time.Hour)}, ManagedFields: fields}
}

// managedFieldsOf returns the managed fields of a document.
func managedFieldsOf(t *testing.T, raw []byte) []metav1.ManagedFieldsEntry {
	t.Helper()
	var object struct {
		Metadata struct {
			ManagedFields []metav1.ManagedFieldsEntry `json:"managedFields"`
		} `json:"metadata"`
	}
	NewWithT(t).Expect(json.Unmarshal(raw, &object)).To(Succeed())
	return object.Metadata.ManagedFields
}

// withoutManagedFields returns a document without its managed fields.
func withoutManagedFields(t *testing.T, raw []byte) []byte {
	t.Helper()
	Expect := NewWithT(t).Expect
	object := map[string]any{}
	Expect(json.Unmarshal(raw, &object)).To(Succeed())
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
	}
	result, err := json.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
	return result
}
