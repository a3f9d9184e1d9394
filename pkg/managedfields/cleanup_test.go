// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

func TestCleanUp(t *testing.T) {
	const gpuTaint = `{key: gpu, effect: NoSchedule, value: "1", propagation: Always}`
	for _, tc := range []struct {
		name    string
		object  string
		fields  []metav1.ManagedFieldsEntry
		keep    bool
		want    string
		removed []string
		left    []string
	}{
		{
			name: "a key that only we own goes, others stay", object: `{metadata: {labels: {a: "1", b: "2"}}}`,
			fields: entries(ours(labelA), managed("kubectl", update, labelB)),
			want:   `{metadata: {labels: {b: "2"}}}`, removed: []string{".metadata.labels.a"}, left: []string{"kubectl"},
		},
		{
			name: "values stay where that is wanted, and nobody owns them", object: `{metadata: {labels: {a: "1"}}}`, keep: true,
			fields: entries(ours(labelA), managed("kubectl", update, `{f:spec: {}}`)),
			want:   `{metadata: {labels: {a: "1"}}}`, left: []string{"kubectl"},
		},
		{
			name: "what this empties goes, as far as it was not in the object anyhow", object: `{metadata: {annotations: {a: "1"}}, spec: {clusterName: c, template: {metadata: {labels: {a: "1"}}, spec: {deletion: {nodeDrainTimeoutSeconds: 1}}}}}`,
			fields:  entries(ours(`{f:metadata: {f:annotations: {f:a: {}}}, f:spec: {f:template: {f:metadata: {f:labels: {f:a: {}}}, f:spec: {f:deletion: {f:nodeDrainTimeoutSeconds: {}}}}}}`), managed("kubectl", update, `{f:spec: {f:clusterName: {}}}`)),
			want:    `{metadata: {}, spec: {clusterName: c}}`,
			removed: []string{".metadata.annotations.a", ".spec.template.metadata.labels.a", ".spec.template.spec.deletion.nodeDrainTimeoutSeconds"}, left: []string{"kubectl"},
		},
		{
			name: "a taint of a list goes, those of others stay", object: `{metadata: {}, spec: {taints: [{key: b, effect: NoSchedule}, ` + gpuTaint + `, {key: gpu, effect: NoExecute}]}}`,
			fields: entries(ours(gpuWithValue), managed("kubectl", update, `{f:spec: {f:taints: {}}}`)),
			want:   `{metadata: {}, spec: {taints: [{key: b, effect: NoSchedule}, {key: gpu, effect: NoExecute}]}}`, left: []string{"kubectl"},
			removed: []string{`.spec.taints[effect="NoSchedule",key="gpu"]`},
		},
		{
			name: "of a taint that is somebody else's too, our field goes", object: `{metadata: {}, spec: {taints: [` + gpuTaint + `]}}`,
			fields:  entries(ours(gpuWithValue), theirs(gpu)),
			want:    `{metadata: {}, spec: {taints: [{key: gpu, effect: NoSchedule, propagation: Always}]}}`,
			removed: []string{`.spec.taints[effect="NoSchedule",key="gpu"].value`}, left: []string{"capi-machineset"},
		},
		{
			name: "what is not there any more is nothing to remove", object: `{metadata: {}, spec: {taints: []}}`,
			fields: entries(ours(gpuWithValue), managed("kubectl", update, `{}`)), want: `{metadata: {}, spec: {taints: []}}`, left: []string{"kubectl"},
		},
		{
			name: "what an update of ours left is forgotten and stays", object: `{metadata: {labels: {a: "1"}}}`,
			fields: entries(managed("heirloom", update, labelA), managed("kubectl", update, `{}`)),
			want:   `{metadata: {labels: {a: "1"}}}`, left: []string{"kubectl"},
		},
		{
			name: "where nobody else is recorded, the API server is told to forget all", object: `{metadata: {labels: {a: "1", b: "2"}}, spec: {minReadySeconds: 1}}`,
			fields: entries(ours(`{f:metadata: {f:labels: {f:a: {}}}, f:spec: {f:minReadySeconds: {}}}`)),
			want:   `{metadata: {labels: {b: "2"}}, spec: {}}`, removed: []string{".metadata.labels.a", ".spec.minReadySeconds"}, left: []string{""},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			object, want := &unstructured.Unstructured{}, map[string]any{}
			Expect(yaml.Unmarshal([]byte(tc.object), &object.Object)).To(Succeed())
			Expect(yaml.Unmarshal([]byte(tc.want), &want)).To(Succeed())
			object.SetManagedFields(tc.fields)
			before := object.DeepCopy()

			cleaned, removed, err := managedfields.CleanUp(object, tc.keep)
			Expect(err).NotTo(HaveOccurred())
			Expect(object).To(Equal(before), "the input is not mutated")
			var left []string
			for _, entry := range cleaned.GetManagedFields() {
				left = append(left, entry.Manager)
			}
			Expect(left).To(Equal(tc.left))
			Expect(managedfields.Recorded(cleaned.GetManagedFields())).To(BeFalse())
			Expect(removed).To(Equal(tc.removed))
			cleaned.SetManagedFields(nil)
			Expect(cleaned.Object).To(Equal(want))
		})
	}
}
