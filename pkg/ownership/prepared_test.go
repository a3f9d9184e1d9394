// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownership"
)

// TestPreparedPlansAsNew: what is prepared for all objects of an owner plans for each what New does, whatever the object has and
// no matter who owns it. It also makes sure that both the settled and the bare objects are prepared for: otherwise nothing would be gained.
func TestPreparedPlansAsNew(t *testing.T) {
	layout := inherit.MachineLayout
	settled, bare := 0, 0
	for seed := range uint64(1000) {
		d := drawn{rand.New(rand.NewPCG(seed, 1))}
		desired := d.content()
		prepared := ownership.Prepare(layout, inherit.Object{Top: desired})
		NewWithT(t).Expect(prepared).NotTo(BeNil())
		m := d.machine(desired)
		if d.IntN(2) == 0 { // a Machine that declares its taints itself has them before it has an owner
			m = inheriting(t, m, inherit.Content{Taints: desired.Taints})
		}
		for range 3 { // as it is, once it has inherited, and after somebody has changed it
			raw := encoded(t, m)
			plan, err := ownership.New(m, inherit.OfMachine(m), inherit.Decision{Outcome: inherit.Inherits, Desired: inherit.Object{Top: desired}}, nil)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			patch := said(t, plan, raw)
			if quick := prepared.Plan(m, inherit.OfMachine(m)); quick != nil {
				NewWithT(t).Expect(said(t, quick, raw)).To(Equal(patch), "seed %d: %s\nwants %+v", seed, raw, desired)
				if quick.Needed() {
					bare++
				} else {
					settled++
				}
			}
			m = written(t, plan, raw)
			if d.IntN(2) == 0 {
				d.disturb(m)
			}
		}
	}
	NewWithT(t).Expect(settled).To(BeNumerically(">", 300))
	NewWithT(t).Expect(bare).To(BeNumerically(">", 150))
}

// TestACopyIsAdopted: a Machine may have taints of ours that it declares itself, and still be a copy.
func TestACopyIsAdopted(t *testing.T) {
	desired := content{labels: "a=1", taints: "gpu=true:NoSchedule"}.content()
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", CreationTimestamp: metav1.NewTime(now)}, Spec: clusterv1.MachineSpec{ClusterName: "c"}}
	m.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	m = inheriting(t, m, inherit.Content{Taints: desired.Taints})
	created := m.ManagedFields[0]
	created.Manager, created.Operation = "creator", metav1.ManagedFieldsOperationUpdate
	created.FieldsV1 = metav1.NewFieldsV1(strings.Replace(created.FieldsV1.GetRawString(), `{`, `{"f:metadata":{"f:labels":{"f:a":{}}},`, 1))
	m.ManagedFields, m.Labels = append(m.ManagedFields, created), desired.Labels
	plan, err := ownership.New(m, inherit.OfMachine(m), inherit.Decision{Outcome: inherit.Inherits, Desired: inherit.Object{Top: desired}}, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(plan.Adopts()).To(BeTrue())
	quick := ownership.Prepare(inherit.MachineLayout, inherit.Object{Top: desired}).Plan(m, inherit.OfMachine(m))
	NewWithT(t).Expect(quick).To(BeNil(), "only New can adopt")
}

func inheriting(t *testing.T, m *clusterv1.Machine, desired inherit.Content) *clusterv1.Machine {
	t.Helper()
	plan, err := ownership.New(m, inherit.OfMachine(m), inherit.Decision{Outcome: inherit.Inherits, Desired: inherit.Object{Top: desired}}, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return written(t, plan, encoded(t, m))
}

// said is all that a plan says.
func said(t *testing.T, plan *ownership.Plan, raw []byte) string {
	t.Helper()
	patch, err := plan.Patch(raw, version, now)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	changes := append([]ownership.Change{}, plan.Changes()...)
	return fmt.Sprintf("%s %v needed %t, gives up %t, adopts %t, left out %v",
		encoded(t, patch), changes, plan.Needed(), plan.GivesUp(), plan.Adopts(), plan.LeftOut())
}

func written(t *testing.T, plan *ownership.Plan, raw []byte) *clusterv1.Machine {
	t.Helper()
	operations, err := plan.Patch(raw, version, now)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	patch, err := jsonpatch.DecodePatch(encoded(t, operations))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	raw, err = patch.Apply(raw)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	m := &clusterv1.Machine{}
	NewWithT(t).Expect(json.Unmarshal(raw, m)).To(Succeed())
	return m
}

func encoded(t *testing.T, object any) []byte {
	t.Helper()
	raw, err := json.Marshal(object)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return raw
}

// drawn draws objects from few keys and values, so that they often meet.
type drawn struct{ *rand.Rand }

func (d drawn) pairs() map[string]string {
	pairs := map[string]string{}
	for range d.IntN(4) {
		pairs[string(rune('a'+d.IntN(5)))] = string(rune('0' + d.IntN(8)/7))
	}
	return pairs
}

func (d drawn) content() inherit.Content {
	c := inherit.Content{Labels: d.pairs(), Annotations: d.pairs()}
	for range d.IntN(3) {
		c.Taints = append(c.Taints, clusterv1.MachineTaint{
			Key: string(rune('a' + d.IntN(3))), Value: []string{"", "", "1"}[d.IntN(3)],
			Effect: "NoSchedule", Propagation: clusterv1.MachineTaintPropagationAlways,
		})
	}
	for f := range c.Fields.Seconds {
		if d.IntN(3) == 0 {
			c.Fields.Seconds[f] = new(int32(d.IntN(2)))
		}
	}
	if d.IntN(3) == 0 {
		c.Fields.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: string(rune('A' + d.IntN(2)))}}
	}
	return c
}

// machine is one that its creator has made, with managed fields or without. It may be a copy of what is desired.
func (d drawn) machine(desired inherit.Content) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: clusterv1.MachineSpec{ClusterName: "c"}}
	m.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	if d.IntN(2) == 0 {
		c := []inherit.Content{d.content(), desired}[d.IntN(2)]
		m.Labels, m.Annotations, m.Spec.Taints, m.Spec.ReadinessGates = c.Labels, c.Annotations, c.Taints, c.Fields.ReadinessGates
		m.Spec.Deletion.NodeDrainTimeoutSeconds = c.Fields.Seconds[inherit.NodeDrainTimeout]
	}
	if d.IntN(3) > 0 {
		m.CreationTimestamp = metav1.NewTime(now)
	}
	if d.IntN(4) > 0 {
		fields := `{"f:metadata":{"f:labels":{"f:a":{},"f:b":{}},"f:annotations":{"f:a":{},"f:c":{}}},` +
			`"f:spec":{"f:deletion":{"f:nodeDrainTimeoutSeconds":{}},` +
			`"f:taints":{"k:{\"effect\":\"NoSchedule\",\"key\":\"a\"}":{".":{},"f:key":{}},` +
			`"k:{\"effect\":\"NoSchedule\",\"key\":\"b\"}":{".":{},"f:key":{}}}}}`
		m.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "creator", Operation: []metav1.ManagedFieldsOperationType{"Update", "Apply"}[d.IntN(2)], APIVersion: version,
			Time: new(metav1.NewTime(now)), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		}}
	}
	return m
}

// disturb is somebody else's write.
func (d drawn) disturb(m *clusterv1.Machine) {
	switch d.IntN(6) {
	case 5: // what no API server stores, and a request can still have
		m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: ownership.Manager, Operation: "Apply", APIVersion: version, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:b":{}}}}`),
		})
	case 0:
		m.Labels = d.pairs()
	case 1:
		m.Annotations = d.pairs()
	case 2:
		m.Spec.Taints = d.content().Taints
	case 3:
		m.Spec.Deletion.NodeDrainTimeoutSeconds = nil
	default:
		m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: "other", Operation: "Update", APIVersion: version, Time: new(metav1.NewTime(now)), FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:a":{}}}}`),
		})
	}
}
