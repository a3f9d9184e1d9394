// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "k8s.io/apimachinery/pkg/util/managedfields"
	"pgregory.net/rapid"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// Eight times as many labels cost eight times as much, not sixty-four times: API servers wait two seconds for an answer, for any number of
// labels. The test counts allocations, which are equal on every machine.
func TestCostGrowsWithTheLabels(t *testing.T) {
	for name, size := range map[string]func(n int) func(){
		"labels that come":                func(n int) func() { return planning(t, nil, many(n)) },
		"labels that others have already": func(n int) func() { return planning(t, many(n), many(n), theirs(fieldsOf(n))) },
		"labels that go": func(n int) func() {
			return planning(t, many(n), nil, ours(fieldsOf(n)), theirs("'f:metadata': {'f:annotations': {'f:x': {}}}"))
		},
		"labels that go and that others have, too": func(n int) func() { return planning(t, many(n), nil, ours(fieldsOf(n)), theirs(fieldsOf(n))) },
		"labels that were taken away": func(n int) func() {
			return func() {
				had := inherit.Object{Layout: inherit.MachineLayout, Top: inherit.Content{Labels: many(n)}}
				plan, err := managedfields.New(&metav1.ObjectMeta{}, content{}.top(), fromOwner(had), func() (inherit.Object, error) { return had, nil })
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				NewWithT(t).Expect(plan.Kept()).To(HaveLen(n))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			few, eightfold := testing.AllocsPerRun(1, size(500)), testing.AllocsPerRun(1, size(4000))
			NewWithT(t).Expect(eightfold/few).To(BeNumerically("<", 12), "%v allocations for 500 labels, %v for 4000", few, eightfold)
		})
	}
}

// planning computes the plan and the patch of a Machine that has some labels and should inherit others.
func planning(t *testing.T, has, inherits map[string]string, fields ...metav1.ManagedFieldsEntry) func() {
	t.Helper()
	current, desired := content{}.top(), content{}.top()
	current.Top.Labels, desired.Top.Labels = has, inherits
	return func() {
		plan, err := managedfields.New(&metav1.ObjectMeta{ManagedFields: fields}, current, fromOwner(desired), nil)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		_, err = plan.Patch([]byte(`{"metadata":{"name":"x"}}`), version, now)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	}
}

func many(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[fmt.Sprintf("label-%d", i)] = "x"
	}
	return labels
}

// fieldsOf returns the managed fields of n labels.
func fieldsOf(n int) string {
	return "'f:metadata': {'f:labels': {" + membersOf(n) + "}}"
}

func membersOf(n int) string {
	var all strings.Builder
	for key := range many(n) {
		fmt.Fprintf(&all, "'f:%s': {}, ", key)
	}
	return all.String()
}

// API servers write managed fields in order. The time for reading so many in the opposite order grows with the square of their number.
func TestManyManagedFieldsMustBeInOrder(t *testing.T) {
	const n = 20_000
	sorted := make([]string, n)
	for i := range n {
		sorted[i] = fmt.Sprintf(`"f:%07d":{}`, i)
	}
	reversed := slices.Clone(sorted)
	slices.Reverse(reversed)
	read := func(elements ...string) error {
		mine := ours("{}")
		mine.FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{` + strings.Join(elements, ",") + "}}}")
		_, err := managedfields.New(&metav1.ObjectMeta{ManagedFields: entries(mine)}, content{}.top(), inherit.Decision{}, nil)
		return err
	}
	with := func(index int, element string) []string { return slices.Insert(slices.Clone(sorted), index, element) }
	Expect := NewWithT(t).Expect
	Expect(read(sorted...)).To(Succeed())
	for _, later := range []string{`"f:z":{"f:a":{}}`, `"k:{\"key\":\"gpu\"}":{".":{}}`, `"v:1":{}`, `"i:0":{}`, `"x:unknown":{}`, `".":{}`} {
		Expect(read(append(sorted, later)...)).To(Succeed())
	}
	for i, passedOver := range []string{`"x:unknown":{}`, `".":{}`} {
		Expect(read(with(i, passedOver)...)).To(Succeed())
	}
	const inOrder = "so many fields must be in order"
	Expect(read(reversed...)).To(MatchError(ContainSubstring(inOrder)))
	Expect(read(with(n, `"f:0000000a":{}`)...)).To(MatchError(ContainSubstring(inOrder)))
	Expect(read(with(0, `"i:0":{}`)...)).To(MatchError(ContainSubstring(inOrder)))
	Expect(read(with(n, `"f:z":{"f:b":{},"f:a":{}}`)...)).To(MatchError(ContainSubstring(inOrder)))
	Expect(read(with(0, `"f:z":[]`)...)).To(MatchError(ContainSubstring("[ among the fields")))
	Expect(read(with(0, `"f:z":1`)...)).To(MatchError(ContainSubstring("1 among the fields")))
	mine := ours("{}")
	mine.FieldsV1 = metav1.NewFieldsV1(`"` + strings.Repeat("x", 15*n) + `"`)
	_, err := managedfields.New(&metav1.ObjectMeta{ManagedFields: entries(mine)}, content{}.top(), inherit.Decision{}, nil)
	Expect(err).To(MatchError(ContainSubstring("among the fields")))
	Expect(read(with(0, `"f:z":}`)...)).To(MatchError(ContainSubstring("reading the fields")))
}

// For any content of managed fields, New returns an error, or a plan with an answer that API servers can read.
func TestBrokenManagedFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for range 6 { // a story takes six times as long
			brokenFields(t)
		}
	})
}

func brokenFields(t *rapid.T) {
	t.Helper()
	kind := oneOf(t, kinds...)
	object := object(kind, written(t, kind), broken.Draw(t, "managed fields")...)
	identify(object)
	current, decided := contentOf(object), declaring(t, kind).decision()
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
			t.Error(err)
		}
		operations, err := plan.Patch(raw, object.GetAPIVersion(), now)
		if err != nil || len(operations) == 0 || upstream.ValidateManagedFields(object.GetManagedFields()) != nil {
			continue
		}
		result, err := (&world{kind: kind, clock: now}).patched(plan, object)
		if err != nil {
			t.Error(err)
		} else if err := upstream.ValidateManagedFields(result.GetManagedFields()); err != nil {
			t.Errorf("what could be read no longer can: %v", err)
		}
	}
	trimmed(object.GetManagedFields(), now)
	_, _, _ = managedfields.CleanUp(object, rapid.Bool().Draw(t, "")) // an error is a valid answer
}

// broken generates managed fields that no API server would write.
var broken = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) metav1.ManagedFieldsEntry {
	fields := oneOf(t, "", "null", "[]", `"x"`, "7", "{", "{}", `{"f:metadata":null}`, `{"f:metadata":{"f:labels":{"f:a":{},"f:a":{}}}}`, `{"f:metadata":{"f:labels":{".":{},"f:b":{"f:c":{}}}}}`,
		`{"f:metadata":{"v:1":{},"i:0":{},"x:":{}}}`, `{"f:spec":{"f:taints":{"k:{}":{},"k:{\"key\":7}":{".":{}}}}}`, `{"f:spec":{"f:taints":{}}}`, `{"f:spec":{".":{},"f:nodeDrainTimeout":{"f:x":{}}}}`,
		`{"f:spec":{"f:template":{"f:spec":{"f:taints":{"k:{\"effect\":\"NoSchedule\",\"key\":\"gpu\"}":{"f:value":{}}}}}}}`, `{"f:spec":{"f:deletion":{}}}`)
	entry := metav1.ManagedFieldsEntry{
		Manager: oneOf(t, managedfields.Manager, managedfields.Manager, "kubectl", ""), Operation: oneOf(t, apply, apply, update, ""),
		APIVersion: oneOf(t, version, "cluster.x-k8s.io/v1beta1", "", "v1", "/", "cluster.x-k8s.io/v9"), FieldsType: oneOf(t, "FieldsV1", "FieldsV1", ""), Subresource: oneOf(t, "", "", "status"),
	}
	if fields != "" {
		entry.FieldsV1 = metav1.NewFieldsV1(fields)
	}
	if rapid.Bool().Draw(t, "") {
		entry.Time = &metav1.Time{Time: now.Add(-time.Hour)}
	}
	return entry
}), 0, 3)
