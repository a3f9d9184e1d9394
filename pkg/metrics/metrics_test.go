// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

// exercise gives every metric a value.
func exercise(t *testing.T, registry *prometheus.Registry) {
	t.Helper()
	Expect := NewWithT(t).Expect
	m, err := metrics.New(registry)
	Expect(err).NotTo(HaveOccurred())
	red := types.NamespacedName{Namespace: "fleet", Name: "red"}

	m.Admission("Machine", "CREATE", metrics.Injected)
	m.Admission("Machine", "CREATE", metrics.Injected)
	m.Admission("Node", "UPDATE", metrics.Failed)
	m.AdmissionRejected(metrics.WorkloadServer)(metrics.TooMany)
	m.OwnerLookup(metrics.Cached)
	m.OwnerLookup(metrics.Live)
	m.Key(metrics.ByAdmission, "Machine", "label", metrics.KeyInjected)
	m.Key(metrics.ByResync, "Node", "taint", metrics.KeyRemoved)
	m.Drift(metrics.ByResync, "Node", "taint")
	m.PendingWrites(red, "Machine", 2)
	m.PendingWrites(red, "Node", 1)
	m.PendingWrites(types.NamespacedName{Namespace: "fleet", Name: "blue"}, "Node", 1)
	m.PendingWrites(types.NamespacedName{Namespace: "fleet", Name: "blue"}, "Node", 0)
	m.StartupGates(red, 5, 2, 1800000000)
	m.StartupGates(types.NamespacedName{Namespace: "fleet", Name: "blue"}, 1, 1, 1800000000)
	m.StartupGates(types.NamespacedName{Namespace: "fleet", Name: "blue"}, 0, 0, 1800000000)
	m.ClusterMode(red, metrics.ModeObserve)
	m.ClusterMode(red, metrics.ModeEnforce)
	m.ClusterMode(types.NamespacedName{Namespace: "fleet", Name: "blue"}, metrics.ModeNone)
	m.ClusterMode(types.NamespacedName{Namespace: "fleet", Name: "blue"}, "")
	m.Write("Node", metrics.Conflict)
	m.NoExecuteNodes(red, metrics.NoExecuteWaiting, 7)
	m.NoExecuteNodes(red, metrics.NoExecuteWaiting, 3)
	m.NoExecuteNodes(red, metrics.NoExecuteHeldUp, 0)
	m.NoExecuteHalted(red, true)
	m.NodesUnprotected(types.NamespacedName{}, 2)
	m.NodesUnprotected(red, 5)
	m.NodesUnprotected(red, 4)
	m.NodesUnprotected(types.NamespacedName{Namespace: "fleet", Name: "blue"}, 1)
	m.NodesUnprotected(types.NamespacedName{Namespace: "fleet", Name: "blue"}, 0)
	m.NodesSkipped(red, 3)
	m.NodesSkipped(types.NamespacedName{}, 1)
	m.NodesSkipped(types.NamespacedName{}, 0)
	m.NodeLabeled(1500 * time.Millisecond)
	m.WorkloadClusters(2, 1)
	m.WorkloadRejected()
	Expect(m.Certificate(func() (time.Time, bool) { return time.Unix(1800000000, 0), true })).To(Succeed())
}

func TestMetrics(t *testing.T) {
	Expect := NewWithT(t).Expect
	registry := prometheus.NewRegistry()
	exercise(t, registry)

	Expect(samples(t, registry)).To(ContainElements(
		`heirloom_admission_requests_total{kind="Machine",operation="CREATE",outcome="injected"} 2`,
		`heirloom_admission_requests_total{kind="Node",operation="UPDATE",outcome="failed"} 1`,
		`heirloom_admission_requests_rejected_total{reason="too_many",server="workload"} 1`,
		`heirloom_admission_owner_lookups_total{result="cached"} 1`,
		`heirloom_admission_owner_lookups_total{result="live"} 1`,
		`heirloom_inherited_keys_total{action="injected",kind="Machine",type="label",writer="admission"} 1`,
		`heirloom_inherited_keys_total{action="removed",kind="Node",type="taint",writer="resync"} 1`,
		`heirloom_drift_repaired_total{kind="Node",type="taint",writer="resync"} 1`,
		`heirloom_resync_writes_total{kind="Node",result="conflict"} 1`,
		`heirloom_no_execute_nodes{cluster_name="red",cluster_namespace="fleet",state="waiting"} 3`,
		`heirloom_no_execute_halted{cluster_name="red",cluster_namespace="fleet"} 1`,
		`heirloom_startup_gates_closed{cluster_name="red",cluster_namespace="fleet"} 5`,
		`heirloom_startup_gates_late{cluster_name="red",cluster_namespace="fleet"} 2`,
		`heirloom_startup_gates_closed_since_timestamp_seconds{cluster_name="red",cluster_namespace="fleet"} 1.8e+09`,
		`heirloom_unprotected_nodes{cluster_name="",cluster_namespace=""} 2`,
		`heirloom_unprotected_nodes{cluster_name="red",cluster_namespace="fleet"} 4`,
		`heirloom_skipped_nodes{cluster_name="red",cluster_namespace="fleet"} 3`,
		`heirloom_pending_writes{cluster_name="red",cluster_namespace="fleet",kind="Machine"} 2`,
		`heirloom_pending_writes{cluster_name="red",cluster_namespace="fleet",kind="Node"} 1`,
		`heirloom_cluster_mode{cluster_name="red",cluster_namespace="fleet",mode="enforce"} 1`,
		`heirloom_node_labels_delay_seconds_bucket{le="1"} 0`,
		`heirloom_node_labels_delay_seconds_bucket{le="2"} 1`,
		`heirloom_workload_clusters{state="connected"} 2`,
		`heirloom_workload_clusters{state="disconnected"} 1`,
		`heirloom_workload_admission_rejected_total 1`,
		`heirloom_webhook_certificate_expiration_timestamp_seconds 1.8e+09`,
	))
	Expect(samples(t, registry)).NotTo(ContainElement(ContainSubstring("blue")), "a Cluster without such Nodes has no series")
	Expect(samples(t, registry)).NotTo(ContainElement(ContainSubstring(`mode="observe"`)), "a Cluster has one mode")
	Expect(testutil.GatherAndLint(registry)).To(BeEmpty())
}

// samples returns the lines of a scrape, without comments.
func samples(t *testing.T, registry *prometheus.Registry) []string {
	t.Helper()
	families, err := registry.Gather()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var text strings.Builder
	for _, family := range families {
		_, err := expfmt.MetricFamilyToText(&text, family)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "#") })
}

// The page lists every metric with its type and its labels, and no other metric.
func TestEveryMetricIsDocumented(t *testing.T) {
	Expect := NewWithT(t).Expect
	registry := prometheus.NewRegistry()
	exercise(t, registry)
	families, err := registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	var exported []string
	for _, family := range families {
		var labels []string
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, label.GetName())
		}
		slices.Sort(labels)
		exported = append(exported, fmt.Sprintln(family.GetName(), strings.ToLower(family.GetType().String()), labels))
	}

	page, err := os.ReadFile("../../docs/monitoring.md")
	Expect(err).NotTo(HaveOccurred())
	row := regexp.MustCompile("(?m)^\\| `(heirloom_[a-z_]+)` \\| ([a-z]+) \\| ([^|]*)\\|")
	code := regexp.MustCompile("`([a-z_]+)`")
	var documented []string
	for _, match := range row.FindAllSubmatch(page, -1) {
		var labels []string
		for _, label := range code.FindAllSubmatch(match[3], -1) {
			labels = append(labels, string(label[1]))
		}
		slices.Sort(labels)
		documented = append(documented, fmt.Sprintln(string(match[1]), string(match[2]), labels))
	}
	Expect(documented).To(ConsistOf(exported))
}

func TestMetricsAreRegisteredOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	_, err := metrics.New(registry)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	_, err = metrics.New(registry)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("registering metrics")))
}

// A certificate that cannot be read has no expiry; the value 0 would be a time in 1970.
func TestUnknownExpiry(t *testing.T) {
	Expect := NewWithT(t).Expect
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	Expect(err).NotTo(HaveOccurred())
	Expect(m.Certificate(func() (time.Time, bool) { return time.Time{}, false })).To(Succeed())
	Expect(samples(t, registry)).To(ContainElement("heirloom_webhook_certificate_expiration_timestamp_seconds NaN"))
}

// A workload cluster's API server may report a Node that was created in 1970, or tomorrow. Such a Node must not spoil the sum.
func TestImplausibleDelaysDoNotCount(t *testing.T) {
	Expect := NewWithT(t).Expect
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	Expect(err).NotTo(HaveOccurred())
	now := time.Now()
	for _, created := range []time.Time{time.Unix(0, 0), {}, now.Add(time.Second), now.AddDate(1000, 0, 0), now.AddDate(0, 0, -2)} {
		m.NodeLabeled(now.Sub(created))
	}
	Expect(samples(t, registry)).To(ContainElements("heirloom_node_labels_delay_seconds_count 0", "heirloom_node_labels_delay_seconds_sum 0"))
	m.NodeLabeled(0)
	m.NodeLabeled(24 * time.Hour)
	Expect(samples(t, registry)).To(ContainElements("heirloom_node_labels_delay_seconds_count 2", "heirloom_node_labels_delay_seconds_sum 86400"))
}

func TestKind(t *testing.T) {
	for _, tc := range []struct{ group, kind, want string }{
		{group: "cluster.x-k8s.io", kind: "Machine", want: "Machine"},
		{group: "", kind: "Node", want: "Node"},
		{group: "controlplane.cluster.x-k8s.io", kind: "KubeadmControlPlane", want: "ControlPlane"},
		{group: "infrastructure.cluster.x-k8s.io", kind: "DockerMachine", want: "InfraMachine"},
		{group: "bootstrap.cluster.x-k8s.io", kind: "KubeadmConfig", want: "BootstrapConfig"},
		{group: "example.com", kind: "Anything", want: "other"},
		{group: "cluster.x-k8s.io", kind: "MachineHealthCheck", want: "other"},
		{group: "cluster.x-k8s.io", kind: "ClusterClass", want: "ClusterClass"},
	} {
		NewWithT(t).Expect(metrics.Kind(tc.group, tc.kind)).To(Equal(tc.want), tc.kind)
	}
}
