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

// needsPolicies skips a test of what a MutatingAdmissionPolicy does where the API server has none.
func needsPolicies(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	if !cp.ServesAdmissionPolicies() {
		t.Skipf("Kubernetes %s does not serve MutatingAdmissionPolicies. TestNodesAreAdmittedByDefault shows what Heirloom does then", cp.Version())
	}
}

// byDefault is the best way that the workload cluster can have, where there is a URL for webhooks.
func (a abroad) byDefault() string {
	if a.ServesAdmissionPolicies() {
		return workload.AdmitByPolicy
	}
	return workload.AdmitByWebhook
}

// admittedByLoop has no way to admit Nodes in the workload cluster.
func (s *scene) admittedByLoop(a abroad) {
	s.t.Helper()
	s.get(a.cluster)
	s.update(a.cluster, func() { a.cluster.Labels = map[string]string{workload.AdmissionLabel: workload.AdmitByLoop} })
	s.Eventually(func() []string { return s.ways(a.Client) }).WithTimeout(patience).Should(BeEmpty())
}

// refusedPolicy reports whether a workload cluster cannot have the policy that its Cluster asks for. Then the Cluster says so.
func (s *scene) refusedPolicy(a abroad) bool {
	s.t.Helper()
	if !a.ServesAdmissionPolicies() {
		s.expectEvent("NoAdmissionPolicies", "Cluster", a.cluster.Name, ContainSubstring("only the loop adds inherited entries to Nodes"))
	}
	return !a.ServesAdmissionPolicies()
}

// admitBefore makes a workload cluster admit its Nodes in that way, as a program did that has gone.
func (s *scene) admitBefore(a abroad) {
	s.t.Helper()
	if a.byDefault() == workload.AdmitByPolicy {
		s.Expect(policy.Ensure(s.ctx, a.Client, client.ObjectKeyFromObject(a.cluster), nil, inherit.Policy{})).Error().To(Succeed())
		return
	}
	installed := &admissionregistrationv1.MutatingWebhookConfiguration{}
	s.Expect(s.Client.Get(s.ctx, types.NamespacedName{Name: "heirloom"}, installed)).To(Succeed())
	configuration, err := webhook.Configuration(installed, s.WorkloadURL+webhook.Path([]byte("a key"), webhook.IdentityOf(a.cluster)))
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(client.IgnoreAlreadyExists(a.Client.Create(s.ctx, configuration))).To(Succeed())
}

// expectTheLoopAlone registers Nodes of a workload cluster that can have neither a policy nor a webhook: that much is said, and the
// loop brings what they inherit.
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
		s.Expect(node.Spec.Taints).NotTo(ContainElement(HaveField("Key", "gpu")), "nothing is there to bring it")
		s.expectInherited(a, node)
	}
	parameters := client.ObjectKey{Namespace: policy.Namespace, Name: policy.Name}
	s.Expect(a.Client.Get(s.ctx, parameters, &corev1.ConfigMap{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"), "no policy would read them")
}
