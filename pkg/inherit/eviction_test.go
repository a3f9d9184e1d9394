// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

func TestEvicting(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	const drain = "drain=now:NoExecute"
	tracked := "capi/taints="
	for _, tc := range []struct {
		name              string
		typed, annotated  string
		age               time.Duration
		has, trackedTaint string
		untracked         bool
		want              []string
	}{
		{name: "a new NoExecute taint evicts", typed: drain, age: time.Hour, want: []string{"drain:NoExecute"}},
		{name: "so does one that is declared by annotation", annotated: drain, age: time.Hour, want: []string{"drain:NoExecute"}},
		{name: "other effects do not", typed: "drain=now:NoSchedule", age: time.Hour},
		{name: "an Initialize taint does not come to an existing Node", typed: drain + "@OnInitialization", age: time.Hour},
		{name: "one that the Node has does not", typed: drain, age: time.Hour, has: "drain=other:NoExecute"},
		{name: "one that was taken away from the Node is put back at once", typed: drain, age: time.Hour, trackedTaint: "drain:NoExecute"},
		{name: "a Node that is registering gets everything", typed: drain, age: time.Minute, untracked: true},
		{name: "one that existed before Heirloom does not", typed: drain, age: time.Hour, untracked: true, want: []string{"drain:NoExecute"}},
		{name: "a young Node that has inherited already does not", typed: drain, age: time.Minute, want: []string{"drain:NoExecute"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			m := &capi.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"note": "x"}}}
			m.Spec.Taints = declared(tc.typed)
			if tc.annotated != "" {
				m.Annotations[taint.AlwaysAnnotation] = tc.annotated + ",gpu:NoSchedule"
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: now.Add(-tc.age)}}}
			if !tc.untracked {
				node.Annotations = annotations(tracked + tc.trackedTaint)
			}
			node.Spec.Taints = onNode(tc.has)

			evicting := inherit.Evicting(m, node, now)
			var got []string
			for _, id := range evicting {
				got = append(got, id.String())
			}
			Expect(got).To(Equal(tc.want))

			before := m.DeepCopy()
			without := inherit.WithoutTaints(m, evicting)
			Expect(m).To(Equal(before), "the input is not mutated")
			Expect(inherit.Evicting(without, node, now)).To(BeEmpty())
			Expect(without.Annotations).To(HaveKeyWithValue("note", "x"))
			if tc.annotated != "" {
				Expect(without.Annotations).To(HaveKeyWithValue(taint.AlwaysAnnotation, "gpu:NoSchedule"), "the others stay")
			}
		})
	}
}
