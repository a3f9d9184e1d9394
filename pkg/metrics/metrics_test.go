// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

func TestMetrics(t *testing.T) {
	Expect := NewWithT(t).Expect
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	Expect(err).NotTo(HaveOccurred())

	m.Admission("Machine", "CREATE", metrics.Injected)
	m.Admission("Machine", "CREATE", metrics.Injected)
	m.Admission("Node", "UPDATE", metrics.Failed)
	m.Write("Node", metrics.Conflict)
	m.NoExecuteWaiting(7)
	m.NoExecuteWaiting(3)
	m.WorkloadDenied()

	Expect(testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP heirloom_admission_requests_total Admission requests answered, by kind, operation and outcome (injected, unchanged, unmatched, refused, failed).
# TYPE heirloom_admission_requests_total counter
heirloom_admission_requests_total{kind="Machine",operation="CREATE",outcome="injected"} 2
heirloom_admission_requests_total{kind="Node",operation="UPDATE",outcome="failed"} 1
# HELP heirloom_no_execute_waiting_nodes Existing Nodes that wait for their turn to get a taint which evicts Pods (--no-execute-rate).
# TYPE heirloom_no_execute_waiting_nodes gauge
heirloom_no_execute_waiting_nodes 3
# HELP heirloom_resync_writes_total Writes sent by the resync loop, by kind and result (applied, conflict, error).
# TYPE heirloom_resync_writes_total counter
heirloom_resync_writes_total{kind="Node",result="conflict"} 1
# HELP heirloom_workload_admission_denied_total Requests to the webhook of workload clusters that were denied: their path proves no Cluster that is known.
# TYPE heirloom_workload_admission_denied_total counter
heirloom_workload_admission_denied_total 1
`))).To(Succeed())
	Expect(testutil.GatherAndLint(registry)).To(BeEmpty())
}

func TestMetricsAreRegisteredOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	_, err := metrics.New(registry)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	_, err = metrics.New(registry)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("registering metrics")))
}
