// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// What happens to a fleet can be seen in metrics and in Events on the objects that users look at.
func TestWhatHappensCanBeSeen(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WorkloadWebhook: true})
	a := s.abroad("seen")
	if !a.ServesAdmissionPolicies() {
		s.admittedByLoop(a) // a webhook would put back at once what the loop is to find missing
	}
	node := stage.Node(a.m.Name)
	s.Expect(a.Client.Create(s.ctx, node)).To(Succeed())
	s.expectInherited(a, node)

	t.Run("inheritance", func(t *testing.T) { s.in(t).testSeenInheritance() })
	t.Run("drift", func(t *testing.T) { s.in(t).testSeenDrift(a, node) })
	t.Run("broken tracking", func(t *testing.T) { s.in(t).testSeenBrokenTracking(a, node) })
	t.Run("a Node without its taints", func(t *testing.T) { s.in(t).testSeenUnprotected(a, node) })
	t.Run("admission in the workload cluster", func(t *testing.T) { s.in(t).testSeenAdmission(a) })
	t.Run("a Node that is left out", func(t *testing.T) { s.in(t).testSeenIgnored(a) })
	t.Run("documented metrics", func(t *testing.T) { s.in(t).testDocumentedMetrics() })
	t.Run("a Cluster that goes", func(t *testing.T) { s.in(t).testSeenGone(a) })
}

func (s *scene) testSeenInheritance() {
	s.expectSample(`heirloom_build_info{version="`, 1)
	s.expectSample(`heirloom_admission_requests_total{kind="MachineSet",operation="CREATE",outcome="injected"}`, 1)
	s.expectSample(`heirloom_inherited_keys_total{by="admission",change="injected",kind="Machine",what="label"}`, 1)
	s.expectSample(`heirloom_inherited_keys_total{by="resync",change="injected",kind="Node",what="taint"}`, 1)
	s.expectSample(`heirloom_admission_owner_lookups_total{result="`, 1)
	s.expectSample(`heirloom_node_labels_delay_seconds_count`, 1)
	s.expectSample(`heirloom_workload_clusters{state="connected"}`, 1)
	s.expectSample(`heirloom_webhook_certificate_expiration_timestamp_seconds`, float64(time.Now().Unix()))
}

// testSeenDrift takes something away, once where a webhook sees it and once where only the loop does.
func (s *scene) testSeenDrift(a abroad, node *corev1.Node) {
	s.get(a.ms)
	s.update(a.ms, func() { delete(a.ms.Spec.Template.Labels, "node.cluster.x-k8s.io/pool") })
	s.expectSample(`heirloom_drift_repaired_total{by="admission",kind="MachineSet",what="label"}`, 1)

	s.updateNode(a, node, func() {
		node.Spec.Taints = nil
		node.Labels = maps.Clone(node.Labels)
		delete(node.Labels, "node-role.kubernetes.io/worker")
	})
	s.expectInherited(a, node)
	s.expectSample(`heirloom_drift_repaired_total{by="resync",kind="Node",what="label"}`, 1)
	s.expectSample(`heirloom_drift_repaired_total{by="resync",kind="Node",what="taint"}`, 2)
	s.expectEvent("DriftRepaired", "Machine", a.m.Name, And(ContainSubstring(node.Name), ContainSubstring("node-role.kubernetes.io/worker")))
}

func (s *scene) testSeenBrokenTracking(a abroad, node *corev1.Node) {
	s.updateNode(a, node, func() {
		// More than an Event has room for.
		node.Annotations[clusterv1.TaintsFromMachineAnnotation] = strings.Repeat("?", 2000)
	})
	s.expectEvent("TrackingAnnotationBroken", "Machine", a.m.Name, ContainSubstring(clusterv1.TaintsFromMachineAnnotation))
	s.eventuallyNode(a, node, func(g Gomega) {
		g.Expect(node.Annotations[clusterv1.TaintsFromMachineAnnotation]).To(ContainSubstring("gpu"))
	})
}

// testSeenUnprotected keeps the loop from repairing a Node.
func (s *scene) testSeenUnprotected(a abroad, node *corev1.Node) {
	gauge := `heirloom_unprotected_nodes{cluster_name="` + a.cluster.Name + `",cluster_namespace="` + a.cluster.Namespace + `"}`
	s.Expect(s.samples()).NotTo(HaveKey(gauge))
	policy, binding := denyHeirloom()
	s.Expect(a.Client.Create(s.ctx, policy)).To(Succeed())
	s.Expect(a.Client.Create(s.ctx, binding)).To(Succeed())
	config, err := a.User("heirloom", "system:masters") // as which the kubeconfig of the stage connects
	s.Expect(err).NotTo(HaveOccurred())
	asHeirloom, err := client.New(config, client.Options{Scheme: stage.Scheme()})
	s.Expect(err).NotTo(HaveOccurred())
	s.Eventually(func() error { // an API server needs a moment to hear of a policy
		changed := node.DeepCopy()
		changed.Labels["probe"] = "x"
		return asHeirloom.Patch(s.ctx, changed, client.MergeFrom(node), client.DryRunAll)
	}).WithTimeout(patience).ShouldNot(Succeed())

	s.updateNode(a, node, func() { node.Spec.Taints = nil })
	s.expectSample(gauge, 1)
	s.expectSample(`heirloom_resync_writes_total{kind="Node",result="error"}`, 1)
	s.expectEvent("InheritanceFailed", "Machine", a.m.Name, ContainSubstring("not today"))

	s.Expect(a.Client.Delete(s.ctx, binding)).To(Succeed())
	s.Expect(a.Client.Delete(s.ctx, policy)).To(Succeed())
	s.Eventually(s.samples).WithTimeout(2 * patience).ShouldNot(HaveKey(gauge))
	s.expectInherited(a, node)
}

// testSeenIgnored leaves a Node out, until its Machine is gone.
func (s *scene) testSeenIgnored(a abroad) {
	s.Expect(s.samples()).NotTo(HaveKey(ignoredNodes(a)))
	s.get(a.m)
	s.update(a.m, func() { a.m.Labels[inherit.IgnoreLabel] = "" })
	s.expectSample(ignoredNodes(a), 1)
}

// ignoredNodes is the series that counts the Nodes which are left out in a workload cluster.
func ignoredNodes(a abroad) string {
	return `heirloom_ignored_nodes{cluster_name="` + a.cluster.Name + `",cluster_namespace="` + a.cluster.Namespace + `"}`
}

func denyHeirloom() (*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "deny"}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
		},
	}}}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "request.userInfo.username != 'heirloom'", Message: "not today"}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "deny"}}
	binding.Spec.PolicyName = policy.Name
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	return policy, binding
}

func (s *scene) testSeenAdmission(a abroad) {
	choose := func(way string) {
		s.get(a.cluster)
		s.update(a.cluster, func() { a.cluster.Labels = map[string]string{workload.AdmissionLabel: way} })
	}
	if !a.ServesAdmissionPolicies() {
		choose("policy")
		s.Expect(s.refusedPolicy(a)).To(BeTrue())
		choose("auto")
		s.expectEvent("WorkloadAdmissionRegistered", "Cluster", a.cluster.Name, ContainSubstring("by webhook"))
		choose("none")
		s.expectEvent("WorkloadAdmissionRemoved", "Cluster", a.cluster.Name, ContainSubstring("by webhook"))
		return
	}
	s.expectEvent("WorkloadAdmissionRegistered", "Cluster", a.cluster.Name, ContainSubstring("by policy"))
	choose("webhook")
	s.expectEvent("WorkloadAdmissionRegistered", "Cluster", a.cluster.Name, ContainSubstring("by webhook"))
	s.expectEvent("WorkloadAdmissionRemoved", "Cluster", a.cluster.Name, ContainSubstring("by policy"))
	choose("none")
	s.expectEvent("WorkloadAdmissionRemoved", "Cluster", a.cluster.Name, ContainSubstring("by webhook"))
}

// testDocumentedMetrics looks for every metric of docs/monitoring.md, also those that the libraries export.
func (s *scene) testDocumentedMetrics() {
	root, err := controlplane.RepositoryRoot(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	page, err := os.ReadFile(filepath.Join(root, "docs", "monitoring.md"))
	s.Expect(err).NotTo(HaveOccurred())
	exported := map[string]bool{}
	for sample := range s.samples() {
		name, labels, _ := strings.Cut(sample, "{")
		exported[name] = true
		for _, label := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(labels, -1) {
			exported[name+" "+label[1]] = true
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([^|]*)\\|").FindAllStringSubmatch(string(page), -1)
	s.Expect(rows).NotTo(BeEmpty())
	var missing []string
	for _, row := range rows {
		name := row[1]
		if name == "heirloom_unprotected_nodes" {
			continue // a Cluster without such Nodes has no series; testSeenUnprotected has seen it
		}
		if row[2] == "histogram" {
			name += "_count"
		}
		wanted := []string{name}
		for _, label := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[3], -1) {
			wanted = append(wanted, name+" "+label[1])
		}
		for _, one := range wanted {
			if !exported[one] {
				missing = append(missing, one)
			}
		}
	}
	s.Expect(missing).To(BeEmpty())
}

func (s *scene) testSeenGone(a abroad) {
	for _, object := range []client.Object{a.m, a.ms, a.md, a.cluster} {
		s.Expect(s.Client.Delete(s.ctx, object)).To(Succeed())
	}
	s.Eventually(s.samples).WithTimeout(patience).Should(And(
		HaveKeyWithValue(`heirloom_workload_clusters{state="connected"}`, 0.0), Not(HaveKey(ignoredNodes(a))),
	))
}

// updateNode changes a Node of a workload cluster as an administrator of it does.
func (s *scene) updateNode(a abroad, node *corev1.Node, change func()) {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		g.Expect(a.Client.Get(s.ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		change()
		g.Expect(a.Client.Update(s.ctx, node)).To(Succeed())
	}).WithTimeout(patience).Should(Succeed())
}

// samples returns what the metrics of Heirloom say now, by name and labels.
func (s *scene) samples() map[string]float64 {
	s.t.Helper()
	samples := map[string]float64{}
	for line := range strings.SplitSeq(s.metrics(), "\n") {
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

// expectSample waits until the metrics that begin so are together as much as that, or more.
func (s *scene) expectSample(prefix string, least float64) {
	s.t.Helper()
	s.Eventually(func() float64 { return s.sum(prefix) }).WithTimeout(2*patience).Should(BeNumerically(">=", least), prefix)
}

// sum is how much the metrics that begin so are together.
func (s *scene) sum(prefix string) float64 {
	s.t.Helper()
	sum := 0.0
	for sample, value := range s.samples() {
		if strings.HasPrefix(sample, prefix) {
			sum += value
		}
	}
	return sum
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
