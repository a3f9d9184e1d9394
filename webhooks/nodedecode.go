// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// decodeNode reads what the rules read of a Node. That is a small part: most of a Node are its images, its conditions and what
// managers own of it (BenchmarkWebhookCPU). Of a Node with a part that is read and is odd, the slower library says what is wrong.
func decodeNode(raw runtime.RawExtension) (*corev1.Node, error) {
	var read struct {
		metav1.TypeMeta `json:",inline"`

		Metadata struct {
			metav1.ObjectMeta `json:",inline"`

			ManagedFields passed `json:"managedFields"`
		} `json:"metadata"`
		Spec struct {
			ProviderID string         `json:"providerID"`
			Taints     []corev1.Taint `json:"taints"`
		} `json:"spec"`
		Status struct {
			Addresses []corev1.NodeAddress `json:"addresses"`
		} `json:"status"`
	}
	if len(raw.Raw) == 0 || jsonv2.Unmarshal(raw.Raw, &read) != nil {
		node := &corev1.Node{}
		return node, decode(raw, node)
	}
	return &corev1.Node{
		TypeMeta: read.TypeMeta, ObjectMeta: read.Metadata.ObjectMeta,
		Spec:   corev1.NodeSpec{ProviderID: read.Spec.ProviderID, Taints: read.Spec.Taints},
		Status: corev1.NodeStatus{Addresses: read.Status.Addresses},
	}, nil
}

// passed is a value that is not read.
type passed struct{}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (*passed) UnmarshalJSONFrom(decoder *jsontext.Decoder) error {
	if err := decoder.SkipValue(); err != nil {
		return fmt.Errorf("passing over a value: %w", err)
	}
	return nil
}
