// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// needsPolicies skips a test of MutatingAdmissionPolicies if the API server does not serve them.
func needsPolicies(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	if !cp.ServesAdmissionPolicies() {
		t.Skipf("Kubernetes %s does not serve MutatingAdmissionPolicies. TestNodesAreAdmittedByDefault shows what Heirloom does then", cp.Version())
	}
}

// byDefault returns the default way of admission in the workload cluster if the program has a URL for webhooks.
func (a abroad) byDefault() string {
	if a.ServesAdmissionPolicies() {
		return inherit.AdmitByPolicy
	}
	return inherit.AdmitByWebhook
}

// admittedByLoop turns off admission in the workload cluster, so that only the loop writes its Nodes.
func (s *scene) admittedByLoop(a abroad) {
	s.t.Helper()
	s.get(a.cluster)
	s.update(a.cluster, func() { a.cluster.Labels = map[string]string{inherit.AdmissionLabel: inherit.AdmitByLoop} })
	s.Eventually(func() []string { return s.ways(a.Client) }).WithTimeout(patience).Should(BeEmpty())
}

// refusedPolicy reports whether a workload cluster does not serve the policy that its Cluster chooses. Then it expects an Event about it.
func (s *scene) refusedPolicy(a abroad) bool {
	s.t.Helper()
	if !a.ServesAdmissionPolicies() {
		s.expectEvent("NoAdmissionPolicies", "Cluster", a.cluster.Name, ContainSubstring("only the loop adds inherited entries to Nodes"))
	}
	return !a.ServesAdmissionPolicies()
}

// admitBefore registers the default admission in a workload cluster, like an earlier program of this installation that no longer runs.
func (s *scene) admitBefore(a abroad, installed string) {
	s.t.Helper()
	if a.byDefault() == inherit.AdmitByPolicy {
		s.Expect(policy.Ensure(s.ctx, a.Client, workload.ByPolicy{Installed: installed}.Owner(webhook.IdentityOf(a.cluster)), nil, inherit.Policy{})).Error().To(Succeed())
		return
	}
	hooks := &admissionregistrationv1.MutatingWebhookConfiguration{}
	s.Expect(s.Client.Get(s.ctx, types.NamespacedName{Name: "heirloom"}, hooks)).To(Succeed())
	configuration, err := webhook.Configuration(hooks, s.WorkloadURL+webhook.Path([]byte("a key"), webhook.IdentityOf(a.cluster)))
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(client.IgnoreAlreadyExists(a.Client.Create(s.ctx, configuration))).To(Succeed())
}

// expectTheLoopAlone registers Nodes of a workload cluster that can have neither a policy nor a webhook. It expects an Event with the
// reasons, and the loop applies the inherited entries.
func (s *scene) expectTheLoopAlone(a abroad, names []string) {
	s.t.Helper()
	s.expectEvent("WorkloadAdmissionFallback", "Cluster", a.cluster.Name, And(
		ContainSubstring("Not by policy: the workload cluster's API server does not serve MutatingAdmissionPolicies (Kubernetes 1.36 or later does)."),
		ContainSubstring("Not by webhook: --workload-webhook-url is not set."),
	))
	s.Expect(s.ways(a.Client)).To(BeEmpty())
	for _, name := range names {
		node := stage.Node(name)
		s.Expect(s.kubeletOf(a.ControlPlane, name).Create(s.ctx, node)).To(Succeed())
		s.Expect(node.Spec.Taints).NotTo(ContainElement(HaveField("Key", "gpu")), "the cluster has no admission of Nodes")
		s.expectInherited(a, node)
	}
	parameters := client.ObjectKey{Namespace: policy.Namespace, Name: policy.Name}
	s.Expect(a.Client.Get(s.ctx, parameters, &corev1.ConfigMap{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"), "no policy, no parameters")
}
