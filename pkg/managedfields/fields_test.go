// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// In-place fields are where the child's layout has them, and so are their owners.
func TestFields(t *testing.T) {
	declared := inherit.Fields{
		Seconds:        inherit.Seconds{inherit.NodeDrainTimeout: ptr.To(int32(90)), inherit.MinReadySeconds: ptr.To(int32(5))},
		ReadinessGates: []clusterv1.MachineReadinessGate{{ConditionType: "example.com/Ready", Polarity: clusterv1.NegativePolarityCondition}},
	}
	ofOlderContract := inherit.ControlPlaneLayout("v1beta1", func(path ...string) bool { return !slices.Contains(path, "deletion") })
	for _, tc := range []struct {
		name            string
		current         inherit.Object
		desired         inherit.Object
		before, after   string
		ours, afterOurs string
	}{
		{
			name:    "a Machine has timeouts in seconds below spec.deletion",
			current: inherit.Object{Layout: inherit.MachineLayout}, desired: inherit.Object{Top: inherit.Content{Fields: declared}},
			before:    `{"metadata":{},"spec":{}}`,
			after:     `{"spec":{"deletion":{"nodeDrainTimeoutSeconds":90},"minReadySeconds":5,"readinessGates":[{"conditionType":"example.com/Ready","polarity":"Negative"}]}}`,
			afterOurs: `{"f:spec":{"f:deletion":{"f:nodeDrainTimeoutSeconds":{}},"f:minReadySeconds":{},"f:readinessGates":{"k:{\"conditionType\":\"example.com/Ready\"}":{".":{},"f:conditionType":{},"f:polarity":{}}}}}`,
		},
		{
			name: "the last timeout that goes takes spec.deletion with it, which may not be empty",
			current: inherit.Object{Layout: inherit.MachineLayout, Top: inherit.Content{Fields: inherit.Fields{
				Seconds: inherit.Seconds{inherit.NodeDrainTimeout: ptr.To(int32(90)), inherit.NodeDeletionTimeout: ptr.To(int32(1))},
			}}},
			before: `{"metadata":{},"spec":{"deletion":{"nodeDrainTimeoutSeconds":90,"nodeDeletionTimeoutSeconds":1}}}`, after: `{"spec":{}}`,
			ours: `{"f:spec":{"f:deletion":{"f:nodeDrainTimeoutSeconds":{},"f:nodeDeletionTimeoutSeconds":{}}}}`,
		},
		{
			name: "a timeout that is not ours stays, and spec.deletion with it",
			current: inherit.Object{Layout: inherit.MachineLayout, Top: inherit.Content{Fields: inherit.Fields{
				Seconds: inherit.Seconds{inherit.NodeDrainTimeout: ptr.To(int32(90)), inherit.NodeDeletionTimeout: ptr.To(int32(1))},
			}}},
			before: `{"metadata":{},"spec":{"deletion":{"nodeDrainTimeoutSeconds":90,"nodeDeletionTimeoutSeconds":1}}}`,
			after:  `{"spec":{"deletion":{"nodeDeletionTimeoutSeconds":1}}}`,
			ours:   `{"f:spec":{"f:deletion":{"f:nodeDrainTimeoutSeconds":{}}}}`,
		},
		{
			name: "a control plane in another version than our entry keeps lists and fields, and who owns them",
			current: inherit.Object{Layout: ofOlderContract, Template: &inherit.Content{
				Labels: map[string]string{"a": "1"}, Fields: inherit.Fields{Seconds: inherit.Seconds{inherit.NodeDrainTimeout: ptr.To(int32(90))}}}},
			desired: inherit.Object{Template: &inherit.Content{
				Labels: map[string]string{"a": "2"}, Fields: inherit.Fields{Seconds: inherit.Seconds{inherit.NodeDrainTimeout: ptr.To(int32(60))}},
				Taints: []clusterv1.MachineTaint{{Key: "gpu", Effect: "NoSchedule", Propagation: "Always"}}}},
			before:    `{"metadata":{},"spec":{"machineTemplate":{"metadata":{"labels":{"a":"1"}},"nodeDrainTimeout":"1m30s"}}}`,
			after:     `{"spec":{"machineTemplate":{"metadata":{"labels":{"a":"2"}},"nodeDrainTimeout":"1m30s"}}}`,
			ours:      `{"f:spec":{"f:machineTemplate":{"f:spec":{"f:deletion":{"f:nodeDrainTimeoutSeconds":{}}}}}}`,
			afterOurs: `{"f:spec":{"f:machineTemplate":{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:deletion":{"f:nodeDrainTimeoutSeconds":{}}}}}}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			var managed []metav1.ManagedFieldsEntry
			if tc.ours != "" {
				managed = []metav1.ManagedFieldsEntry{{
					Manager: managedfields.Manager, Operation: metav1.ManagedFieldsOperationApply,
					APIVersion: "cluster.x-k8s.io/v1beta2", FieldsV1: metav1.NewFieldsV1(tc.ours),
				}}
			}
			plan, err := managedfields.New(child(managed), tc.current, fromOwner(tc.desired), nil)
			Expect(err).NotTo(HaveOccurred())
			operations, err := plan.Patch([]byte(tc.before), "cluster.x-k8s.io/v1beta2", time.Unix(0, 0))
			Expect(err).NotTo(HaveOccurred())
			encoded, err := json.Marshal(operations)
			Expect(err).NotTo(HaveOccurred())
			patch, err := jsonpatch.DecodePatch(encoded)
			Expect(err).NotTo(HaveOccurred())
			after, err := patch.Apply([]byte(tc.before))
			Expect(err).NotTo(HaveOccurred())

			var object struct {
				Metadata metav1.ObjectMeta `json:"metadata"`
				Spec     json.RawMessage   `json:"spec"`
			}
			Expect(json.Unmarshal(after, &object)).To(Succeed())
			Expect(`{"spec":` + string(object.Spec) + `}`).To(MatchJSON(tc.after))
			if tc.afterOurs == "" {
				Expect(object.Metadata.ManagedFields).To(BeEmpty())
				return
			}
			Expect(object.Metadata.ManagedFields[0].FieldsV1.GetRawString()).To(MatchJSON(tc.afterOurs))
		})
	}
}

// On the same key and effect the typed field wins (docs/design.md §3), also where it is the child's own.
func TestAnOwnTypedTaintWinsOverAnAnnotatedOne(t *testing.T) {
	typed := []clusterv1.MachineTaint{{Key: "gpu", Value: "typed", Effect: "NoSchedule", Propagation: "Always"}}
	annotated := []clusterv1.MachineTaint{{Key: "gpu", Value: "annotated", Effect: "NoSchedule", Propagation: "Always"}}
	var wants inherit.Content
	annotate(&wants, annotated)
	plan, err := managedfields.New(child(entries(theirs("{}"))),
		inherit.Object{Layout: inherit.MachineLayout, Top: inherit.Content{Taints: typed}}, fromOwner(inherit.Object{Top: wants}), nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(plan.Needed()).To(BeFalse())
}
