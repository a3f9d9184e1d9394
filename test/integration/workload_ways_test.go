// SPDX-License-Identifier: Apache-2.0

package integration

import (
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// admitted chooses a way of admission in a workload cluster, and waits until the loop has set up this way and no other.
func (s *scene) admitted(a abroad, way string) {
	s.t.Helper()
	s.get(a.cluster)
	s.update(a.cluster, func() { a.cluster.Labels = map[string]string{inherit.AdmissionLabel: way} })
	s.Eventually(func(g Gomega) { g.Expect(s.ways(a.Client)).To(Equal([]string{way})) }).WithTimeout(patience).Should(Succeed())
}

// ways returns the ways of admission in a workload cluster.
func (s *scene) ways(c client.Client) []string {
	s.t.Helper()
	var found []string
	for way, object := range map[string]client.Object{
		inherit.AdmitByWebhook: &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhook.ObjectName}},
		inherit.AdmitByPolicy:  &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy.Name}},
	} {
		err := c.Get(s.ctx, client.ObjectKeyFromObject(object), object)
		if meta.IsNoMatchError(err) {
			continue // its API server does not serve this kind
		}
		s.Expect(client.IgnoreNotFound(err)).To(Succeed())
		if err == nil {
			found = append(found, way)
		}
	}
	return found
}
