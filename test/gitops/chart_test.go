// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// chart returns the chart's objects; the API server calls the program of the scene.
func (s *scene) chart(certificates string) []*unstructured.Unstructured {
	s.t.Helper()
	rendered, err := controlplane.RenderChart(s.ctx, filepath.Join("deploy", "chart", "heirloom"), controlplane.ChartOptions{
		Namespace: stage.Namespace, Values: map[string]any{
			"certificates": map[string]any{"mode": certificates}, "managementCluster": stage.Home + "/" + stage.Home, // as the flags of the program
		},
	})
	s.Expect(err).NotTo(HaveOccurred())
	var objects []*unstructured.Unstructured
	for i := range rendered {
		objects = append(objects, &rendered[i])
		s.callByURL(&rendered[i])
	}
	return objects
}

// callByURL replaces the Service with the program's URL.
func (s *scene) callByURL(object *unstructured.Unstructured) {
	s.t.Helper()
	hooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
	s.Expect(err).NotTo(HaveOccurred())
	for _, hook := range hooks {
		hook, _ := hook.(map[string]any)
		config, _ := hook["clientConfig"].(map[string]any)
		path, _, err := unstructured.NestedString(config, "service", "path")
		s.Expect(err).NotTo(HaveOccurred())
		delete(config, "service")
		config["url"] = s.WebhookURL + path
	}
	if len(hooks) > 0 {
		s.Expect(unstructured.SetNestedSlice(object.Object, hooks, "webhooks")).To(Succeed())
	}
}

// installChart applies the chart's objects again and waits until the webhooks' CA is published: by Heirloom, which checks it at its
// start, or as by cert-manager.
func (s *scene) installChart(tool tool, certificates string) []*unstructured.Unstructured {
	s.t.Helper()
	s.Expect(s.StopHeirloom()).To(Succeed())
	git := s.chart(certificates)
	tool.apply(s, git)
	if certificates == "self" {
		s.Expect(s.StartHeirloom(s.ctx)).To(Succeed())
	} else {
		s.inject()
	}
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	s.Eventually(func(g Gomega) {
		g.Expect(s.Client.Get(s.ctx, client.ObjectKey{Name: "heirloom"}, configuration)).To(Succeed())
		for _, webhook := range configuration.Webhooks {
			g.Expect(webhook.ClientConfig.CABundle).NotTo(BeEmpty())
		}
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	return git
}

// inject acts as cert-manager's cainjector: it writes the CA into every webhook, in a plain update.
func (s *scene) inject() {
	s.t.Helper()
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	s.Expect(s.Client.Get(s.ctx, client.ObjectKey{Name: "heirloom"}, mutating)).To(Succeed())
	s.Expect(s.Client.Get(s.ctx, client.ObjectKey{Name: "heirloom"}, validating)).To(Succeed())
	ca, err := controlplane.ServingCertificate(s.t.TempDir(), "127.0.0.1")
	s.Expect(err).NotTo(HaveOccurred())
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].ClientConfig.CABundle = ca
	}
	for i := range validating.Webhooks {
		validating.Webhooks[i].ClientConfig.CABundle = ca
	}
	for _, object := range []client.Object{mutating, validating} {
		s.Expect(s.Client.Update(s.ctx, object, client.FieldOwner("cert-manager-cainjector"))).To(Succeed())
	}
}

// The chart's own objects stay in sync while Heirloom, or cert-manager, publishes the CA in two of them.
func TestTheChartIsAsInGit(t *testing.T) {
	s := newScene(t)
	for name, tool := range tools() {
		for _, certificates := range []string{"self", "cert-manager"} {
			t.Run(name+"/"+certificates, func(t *testing.T) {
				s := s.in(t)
				git := s.installChart(tool, certificates)
				s.settle(tool, git)
				s.Expect(kinds(git)).To(ContainElements("Deployment", "Service", "ClusterRole", "MutatingWebhookConfiguration"))
				s.remove(git)
			})
		}
	}
}

func kinds(objects []*unstructured.Unstructured) []string {
	var all []string
	for _, o := range objects {
		all = append(all, o.GetKind())
	}
	return all
}

// remove deletes the objects for the next tool, apart from the program's rights.
func (s *scene) remove(objects []*unstructured.Unstructured) {
	s.t.Helper()
	for _, o := range objects {
		if o.GetKind() == "ServiceAccount" || o.GroupVersionKind().Group == "rbac.authorization.k8s.io" {
			continue
		}
		s.Expect(s.Client.Delete(s.ctx, o.DeepCopy())).To(Succeed())
	}
}
