// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// With a label of the Cluster, its API server calls Heirloom about Nodes: they inherit in the same write, before the loop sees them. Without
// the label, the workload cluster has no webhook of Heirloom. The scene does not use FailClosed: these webhooks fail open.
func TestWorkloadClustersCallByURL(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WorkloadWebhook: true})
	a := s.abroad("called")
	s.Eventually(func() []string { return s.ways(a.Client) }).WithTimeout(patience).Should(Equal([]string{a.byDefault()}), "by default")
	s.admitted(a, inherit.AdmitByWebhook)

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
	hooks := &admissionregistrationv1.MutatingWebhookConfigurationList{}
	s.Expect(a.Client.List(s.ctx, hooks)).To(Succeed())
	s.Expect(s.statusOf(*hooks.Items[0].Webhooks[0].ClientConfig.URL)).To(Equal(http.StatusBadRequest), "its body is read")
	s.admittedByLoop(a)
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
