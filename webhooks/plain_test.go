// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// plain is the decider with none of the tricks that make admission fast: it prepares and remembers nothing. It is what the answers are
// compared with.
func plain(d decider) decider {
	switch h := d.(type) {
	case children[clusterv1.Machine, *clusterv1.Machine]:
		h.prepared, h.Chain = prepared{}, forgetting(h.Chain)
		return h
	case children[metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata]:
		h.prepared = prepared{}
		return h
	case nodes:
		h.Chain = forgetting(h.Chain)
		return h
	}
	return d
}

func forgetting(chain *owners.Chain) *owners.Chain {
	other := *chain
	other.Remembered = nil
	return &other
}

// decides asks a decider, and the plain one, which must answer the same. The second time it asks, more has been prepared.
func (s server) decides(t *testing.T, d decider, req admission.Request) admission.Response {
	t.Helper()
	counters, err := metrics.New(prometheus.NewRegistry())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	answer := func(d decider) string {
		text, err := json.Marshal(failOpen{decider: d, metrics: counters}.Handle(t.Context(), req))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return string(text)
	}
	before, prepared, after := answer(plain(d)), answer(d), answer(plain(d)) // the time in it may differ by a second
	NewWithT(t).Expect(prepared).To(Or(Equal(before), Equal(after)))
	return failOpen{decider: d, metrics: s.Metrics}.Handle(t.Context(), req)
}
