// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	clientmetrics "k8s.io/client-go/tools/metrics"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// The requests to workload clusters are a single series, however many servers kubeconfigs name.
func TestWorkloadClustersAreOneSeries(t *testing.T) {
	Expect := NewWithT(t).Expect
	Expect(countRequests(&rest.Config{Host: "https://management.example.com:6443"})).To(Succeed())
	counts, ok := clientmetrics.RequestResult.(byHost)
	Expect(ok).To(BeTrue())
	for i := range 100 {
		counts.Increment(t.Context(), "200", "TEST", fmt.Sprintf("w%d.example.com", i))
	}
	counts.Increment(t.Context(), "200", "TEST", counts.management)
	Expect(countRequests(&rest.Config{})).To(Succeed())
	Expect(clientmetrics.RequestResult).To(Equal(counts), "a second call changes nothing")

	families, err := ctrlmetrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	var hosts []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if labels := metric.GetLabel(); family.GetName() == "rest_client_requests_total" && labels[2].GetValue() == "TEST" {
				hosts = append(hosts, labels[1].GetValue())
			}
		}
	}
	Expect(hosts).To(ConsistOf("workload", counts.management))
}
