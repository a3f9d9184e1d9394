// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

const (
	version       = "cluster.x-k8s.io/v1beta2"
	apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const (
	labelA, labelB = "{'f:metadata': {'f:labels': {'f:a': {}}}}", "{'f:metadata': {'f:labels': {'f:b': {}}}}"
	gpu            = `{'f:spec': {'f:taints': {'k:{"effect":"NoSchedule","key":"gpu"}': {'.': {}, 'f:effect': {}, 'f:key': {}, 'f:propagation': {}}}}}`
	gpuWithValue   = `{'f:spec': {'f:taints': {'k:{"effect":"NoSchedule","key":"gpu"}': {'.': {}, 'f:effect': {}, 'f:key': {}, 'f:propagation': {}, 'f:value': {}}}}}`
)

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

// managed returns an entry of metadata.managedFields that is an hour old; fields is YAML.
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

func ours(fields string) metav1.ManagedFieldsEntry { return managed("heirloom", apply, fields) }
func theirs(fields string) metav1.ManagedFieldsEntry {
	return managed("capi-machineset", apply, fields)
}

func entries(all ...metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry { return all }

// after returns an entry with a later time.
func after(entry metav1.ManagedFieldsEntry, d time.Duration) metav1.ManagedFieldsEntry {
	entry.Time = &metav1.Time{Time: entry.Time.Add(d)}
	return entry
}

// machine returns a Machine, and machineSet a MachineSet with the content in its template. They were created long ago.
func machine(has content, fields ...metav1.ManagedFieldsEntry) *unstructured.Unstructured {
	return object("Machine", has.top(), fields...)
}

func machineSet(has content) *unstructured.Unstructured {
	return object("MachineSet", has.template())
}

func object(kind string, has inherit.Object, fields ...metav1.ManagedFieldsEntry) *unstructured.Unstructured {
	o := (&world{kind: kind}).empty()
	put(o, has)
	return created(24*time.Hour, o, fields...)
}

func created(ago time.Duration, o *unstructured.Unstructured, fields ...metav1.ManagedFieldsEntry) *unstructured.Unstructured {
	o.SetManagedFields(fields)
	o.SetCreationTimestamp(metav1.Time{Time: now.Add(-ago)})
	return o
}

func planOf(t *testing.T, o *unstructured.Unstructured, decided inherit.Decision) *managedfields.Plan {
	t.Helper()
	plan, err := managedfields.New(o, contentOf(o), decided, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return plan
}

// fromOwner is the decision for an object with a known owner, orphan the decision for an object without an owner.
func fromOwner(desired inherit.Object) inherit.Decision {
	return inherit.Decision{Outcome: inherit.Inherits, Desired: desired}
}

func orphan(desired inherit.Object) inherit.Decision {
	return inherit.Decision{Outcome: inherit.NoOwner, Desired: desired}
}

// annotate adds taints that a Machine declares by annotation.
func annotate(c *inherit.Content, annotated []clusterv1.MachineTaint) {
	c.Claims = map[string]inherit.Claim{}
	for _, t := range annotated {
		c.Claims[taint.MachineID(t).String()] = inherit.Default
	}
	for _, t := range c.Taints { // typed taints win
		delete(c.Claims, taint.MachineID(t).String())
	}
	c.Taints = taint.Merge(c.Taints, annotated)
}

// words lists changes as in a warning.
func words(changes []managedfields.Change) (all []string) {
	for _, change := range changes {
		all = append(all, change.String())
	}
	return all
}

// operations returns the operations of the patch for the API server, one operation per line.
func operations(t *testing.T, plan *managedfields.Plan, o *unstructured.Unstructured) (lines []string) {
	t.Helper()
	patch, err := plan.Patch(asJSON(t, o.Object), version, now)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for i := range patch {
		lines = append(lines, patch[i].Json())
	}
	return lines
}

// patched applies the patch like the API server.
func patched(t *testing.T, plan *managedfields.Plan, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	result, err := (&world{clock: now}).patched(plan, o)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return result
}

func asJSON(t *testing.T, value any) []byte {
	t.Helper()
	raw, err := json.Marshal(value)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return raw
}
