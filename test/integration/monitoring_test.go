// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// The program exports every metric of docs/monitoring.md with its labels, including metrics of libraries, after the matching events: a
// Node that inherits from the loop, a repaired drift, a skipped Node, a late start-up gate. The series of a Cluster go with the Cluster.
func TestMetricsAreExported(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	a := s.abroad(s.own("seen"))
	s.admittedByLoop(a) // a webhook would repair the drift before the loop finds it
	node := stage.Node(a.m.Name)
	s.Expect(a.Client.Create(s.ctx, node)).To(Succeed())
	s.expectInherited(a, node)
	bare := node.DeepCopy()
	bare.Spec.Taints = nil
	s.Expect(a.Client.Patch(s.ctx, bare, client.MergeFrom(node))).To(Succeed())
	s.expectEvent("DriftRepaired", "Machine", a.m.Name, ContainSubstring(node.Name))
	s.get(a.m)
	s.update(a.m, func() { a.m.Labels[inherit.IgnoreLabel] = "" })
	skipped := `heirloom_skipped_nodes{cluster_name="` + a.cluster.Name + `",cluster_namespace="` + a.cluster.Namespace + `"}`
	s.Eventually(s.samples).WithTimeout(patience).Should(HaveKey(skipped))

	gated := stage.Machine(a.ms, a.m.Name+"-gated")
	gated.Annotations = map[string]string{taint.UntilAnnotation: "net:NoSchedule until condition Net=True within 1s"}
	s.create(gated)
	s.Expect(a.Client.Create(s.ctx, stage.Node(gated.Name))).To(Succeed())
	s.expectSample("heirloom_startup_gates_late{")

	s.observed("only-observed")
	s.expectSample("heirloom_pending_writes{")
	s.expectDocumentedMetrics()
	for _, object := range []client.Object{gated, a.m, a.ms, a.md, a.cluster} {
		s.Expect(s.Client.Delete(s.ctx, object)).To(Succeed())
	}
	s.Eventually(s.samples).WithTimeout(patience).ShouldNot(HaveKey(skipped))
}

// expectDocumentedMetrics looks for every metric of docs/monitoring.md.
func (s *scene) expectDocumentedMetrics() {
	s.t.Helper()
	page := s.read(filepath.Join(root, "docs", "monitoring.md"))
	exported := map[string]bool{}
	for sample := range s.samples() {
		name, labels, _ := strings.Cut(sample, "{")
		exported[name] = true
		for _, label := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(labels, -1) {
			exported[name+" "+label[1]] = true
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([^|]*)\\|").FindAllStringSubmatch(page, -1)
	s.Expect(rows).NotTo(BeEmpty())
	for _, row := range rows {
		name := row[1]
		if name == "heirloom_unprotected_nodes" || strings.HasPrefix(name, "heirloom_no_execute_") {
			continue // without unprotected Nodes there is no series, and for minutes a Node is too new for a roll-out
		}
		if row[2] == "histogram" {
			name += "_count"
		}
		s.Expect(exported).To(HaveKey(name))
		for _, label := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[3], -1) {
			s.Expect(exported).To(HaveKey(name + " " + label[1]))
		}
	}
}

// samples returns the current values of Heirloom's metrics, by name and labels.
func (s *scene) samples() map[string]float64 { return s.samplesAt(s.MetricsURL) }

func (s *scene) samplesAt(url string) map[string]float64 {
	s.t.Helper()
	metrics, err := stage.Metrics(s.ctx, url)
	s.Expect(err).NotTo(HaveOccurred())
	samples := map[string]float64{}
	for line := range strings.SplitSeq(metrics, "\n") {
		at := strings.LastIndex(line, " ")
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		s.Expect(err).NotTo(HaveOccurred())
		samples[line[:at]] = value
	}
	return samples
}

// expectSample waits until the sum of the metrics with this prefix is positive.
func (s *scene) expectSample(prefix string) {
	s.t.Helper()
	s.Eventually(func() (sum float64) {
		for sample, value := range s.samples() {
			if strings.HasPrefix(sample, prefix) {
				sum += value
			}
		}
		return sum
	}).WithTimeout(2*patience).Should(BeNumerically(">", 0), prefix)
}

func (s *scene) expectEvent(reason, kind, name string, note OmegaMatcher) {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		events := &eventsv1.EventList{}
		g.Expect(s.Client.List(s.ctx, events)).To(Succeed())
		g.Expect(events.Items).To(ContainElement(And(
			HaveField("Reason", reason), HaveField("Regarding.Kind", kind), HaveField("Regarding.Name", name), HaveField("Note", note),
		)))
	}).WithTimeout(2*patience).Should(Succeed(), reason)
}

// observed creates a family, whose MachineDeployment declares a label, in a Cluster of its own in mode observe.
func (s *scene) observed(name string) family {
	s.t.Helper()
	name = s.own(name)
	s.ensureNamespace(name)
	cluster := stage.Cluster(name, name)
	cluster.Labels = map[string]string{inherit.ModeLabel: string(inherit.Observe)}
	s.create(cluster)
	return s.settleIn(name, name, stage.Declared{Labels: map[string]string{"team": "ml"}})
}
