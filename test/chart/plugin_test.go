// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/check"
)

// "kubectl heirloom check" looks for the webhooks of the chart, and each has the match condition that it expects.
func TestThePluginHasTheChartsWebhooks(t *testing.T) {
	Expect := NewWithT(t).Expect
	objects, err := render(t, values{"managementCluster": "fleet/self"})
	Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, object := range objects {
		if object.GroupVersionKind().Group != admissionregistrationv1.GroupName {
			continue
		}
		config := &admissionregistrationv1.MutatingWebhookConfiguration{} // validating webhooks also have these fields
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, config)).To(Succeed())
		for _, w := range config.Webhooks {
			names = append(names, w.Name)
			Expect(w.MatchConditions).To(ContainElement(HaveField("Name", "changed")), w.Name)
		}
	}
	Expect(names).To(ConsistOf(check.Webhooks))
}
