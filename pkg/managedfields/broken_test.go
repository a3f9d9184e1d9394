// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// Whatever somebody has written into managed fields, there is an error or a plan whose answer API servers can read.
func TestBrokenManagedFields(t *testing.T) {
	for i := range uint64(2000) {
		d := dice{Rand: rand.New(rand.NewPCG(7, i))}
		kind, version := one(d, "Machine", "MachineSet", "MachineDeployment"), one(d, "v1beta1", "v1beta2")
		object := (&world{kind: kind}).empty(version)
		identify(object)
		put(object, layoutOf(kind, version), d.object(kind))
		object.SetManagedFields(d.broken())
		current, decided := contentOf(object), d.declared(kind).decision()
		raw, err := json.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}

		for _, plans := range []func() (*managedfields.Plan, error){
			func() (*managedfields.Plan, error) { return managedfields.New(object, current, decided, nil) },
			func() (*managedfields.Plan, error) { return managedfields.NewRemoval(object, current, decided) },
		} {
			plan, err := plans()
			if err != nil {
				continue
			}
			if _, err := plan.ApplyConfiguration(object.GetAPIVersion(), kind, object); err != nil {
				t.Errorf("%d: %v", i, err)
			}
			operations, err := plan.Patch(raw, object.GetAPIVersion(), now)
			if err != nil || len(operations) == 0 || upstream.ValidateManagedFields(object.GetManagedFields()) != nil {
				continue
			}
			result, err := (&world{kind: kind, clock: now}).patched(plan, object)
			if err != nil {
				t.Errorf("%d: %v", i, err)
			} else if err := upstream.ValidateManagedFields(result.GetManagedFields()); err != nil {
				t.Errorf("%d: what could be read no longer can: %v", i, err)
			}
		}
		trimmed(object.GetManagedFields(), now)
		_, _, _ = managedfields.Release(object, d.once(2)) // an error is an answer, too
	}
}

// broken are managed fields as no API server would write them.
func (d dice) broken() []metav1.ManagedFieldsEntry {
	var all []metav1.ManagedFieldsEntry
	for range d.IntN(4) {
		fields := one(d, "", "null", "[]", `"x"`, "7", "{", "{}", `{"f:metadata":null}`, `{"f:metadata":{"f:labels":{"f:a":{},"f:a":{}}}}`, `{"f:metadata":{"f:labels":{".":{},"f:b":{"f:c":{}}}}}`,
			`{"f:metadata":{"v:1":{},"i:0":{},"x:":{}}}`, `{"f:spec":{"f:taints":{"k:{}":{},"k:{\"key\":7}":{".":{}}}}}`, `{"f:spec":{"f:taints":{}}}`, `{"f:spec":{".":{},"f:nodeDrainTimeout":{"f:x":{}}}}`,
			`{"f:spec":{"f:template":{"f:spec":{"f:taints":{"k:{\"effect\":\"NoSchedule\",\"key\":\"gpu\"}":{"f:value":{}}}}}}}`, `{"f:spec":{"f:deletion":{}}}`)
		entry := metav1.ManagedFieldsEntry{
			Manager: one(d, managedfields.Manager, managedfields.Manager, "kubectl", ""), Operation: one(d, metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate, ""),
			APIVersion: one(d, version, "cluster.x-k8s.io/v1beta1", "", "v1", "/", "cluster.x-k8s.io/v9"), FieldsType: one(d, "FieldsV1", "FieldsV1", ""), Subresource: one(d, "", "", "status"),
		}
		if fields != "" {
			entry.FieldsV1 = metav1.NewFieldsV1(fields)
		}
		if d.once(2) {
			entry.Time = &metav1.Time{Time: now.Add(-time.Hour)}
		}
		all = append(all, entry)
	}
	return all
}
