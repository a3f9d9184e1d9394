// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// The scene does not use FailClosed: the webhooks that Heirloom registers in workload clusters fail open.
func TestWorkloadClustersCallByURL(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WorkloadWebhook: true})
	t.Run("a key", func(t *testing.T) { s.in(t).testKey() })
	t.Run("calls", func(t *testing.T) { s.in(t).testCalls() })
}

// With a label of the Cluster, its API server calls Heirloom about Nodes: they inherit in the same write, before the loop sees
// them. Without the label, or without the Cluster, the workload cluster has no webhook of Heirloom.
func (s *scene) testCalls() {
	s.t.Helper()
	a := s.abroad("called")
	registered := func() error {
		list := &admissionregistrationv1.MutatingWebhookConfigurationList{}
		s.Expect(a.Client.List(s.ctx, list)).To(Succeed())
		if len(list.Items) == 0 {
			return apierrors.NewNotFound(admissionregistrationv1.Resource("mutatingwebhookconfigurations"), "any")
		}
		return nil
	}
	choose := func(way string) {
		s.get(a.cluster)
		s.update(a.cluster, func() { a.cluster.Labels = map[string]string{workload.AdmissionLabel: way} })
	}
	s.Eventually(func() []string { return s.ways(a.Client) }).WithTimeout(patience).Should(Equal([]string{a.byDefault()}), "by default")
	s.admitted(a, workload.AdmitByWebhook)

	kubelet, node := s.kubeletOf(a.ControlPlane, a.m.Name), stage.Node(a.m.Name)
	s.Eventually(func(g Gomega) { // an API server reads a new webhook only after a moment
		dry := node.DeepCopy()
		g.Expect(kubelet.Create(s.ctx, dry, client.DryRunAll)).To(Succeed())
		g.Expect(taint.FormatList(dry.Spec.Taints)).To(ContainSubstring("gpu=true:NoSchedule"))
	}).WithTimeout(patience).Should(Succeed())
	s.Expect(kubelet.Create(s.ctx, node)).To(Succeed())
	s.Expect(taint.FormatList(node.Spec.Taints)).To(And(
		ContainSubstring("gpu=true:NoSchedule"), ContainSubstring("node.cluster.x-k8s.io/uninitialized:NoSchedule")))
	s.Expect(node.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/pool", "gpu"))
	s.expectInherited(a, node)

	without := node.DeepCopy()
	without.Spec.Taints = nil
	s.Expect(a.Client.Patch(s.ctx, without, client.MergeFrom(node))).To(Succeed())
	s.Expect(taint.FormatList(without.Spec.Taints)).To(ContainSubstring("gpu=true:NoSchedule"), "the same write restores the taint")

	s.Expect(s.statusOf(s.WorkloadURL+"/mutate/nodes")).To(Equal(http.StatusNotFound), "the management cluster's webhooks are not there")
	choose("none")
	s.Eventually(registered).WithTimeout(patience).ShouldNot(Succeed())
	choose("webhook")
	s.Eventually(registered).WithTimeout(patience).Should(Succeed())
	path := s.calledPath(a)
	s.Expect(s.statusOf(path)).To(Equal(http.StatusBadRequest), "its body is read")
	s.update(a.cluster, func() { a.cluster.Finalizers = []string{"test.example.com/held"} })
	s.Expect(s.Client.Delete(s.ctx, a.cluster)).To(Succeed())
	s.Eventually(registered).WithTimeout(patience).ShouldNot(Succeed(), "the Cluster is being deleted")
	s.get(a.cluster)
	s.update(a.cluster, func() { a.cluster.Finalizers = nil })

	again := stage.Cluster(a.cluster.Namespace, a.cluster.Name)
	again.Labels = map[string]string{workload.AdmissionLabel: "webhook"}
	s.Eventually(func() error { return s.Client.Create(s.ctx, again) }).WithTimeout(patience).Should(Succeed())
	before := again.DeepCopy()
	again.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	s.Expect(s.Client.Status().Patch(s.ctx, again, client.MergeFrom(before))).To(Succeed())
	s.Eventually(registered).WithTimeout(patience).Should(Succeed(), "a Cluster of the same name")
	s.Expect(s.calledPath(a)).NotTo(Equal(path))
	s.Expect(s.statusOf(s.calledPath(a))).To(Equal(http.StatusBadRequest))
	s.Expect(s.statusOf(path)).To(Equal(http.StatusForbidden), "the path of the previous Cluster")
}

// statusOf returns the status of Heirloom's answer to a body that is not a review.
func (s *scene) statusOf(url string) int {
	s.t.Helper()
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := insecure.Post(url, "application/json", strings.NewReader("{}"))
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(response.Body.Close()).To(Succeed())
	return response.StatusCode
}
