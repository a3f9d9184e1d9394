// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"strings"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// The key of the webhook paths is in a Secret in the program's namespace, where all replicas find it. When the Secret is deleted, the
// program makes another key, and the workload cluster calls another path. Meanwhile no write of a Node fails.
func (s *scene) testKey() {
	s.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: stage.Namespace, Name: "heirloom-workload-webhook"}}
	s.eventually(secret, func(g Gomega) { g.Expect(secret.Data).To(HaveKey("key")) })
	before := secret.Data["key"]
	s.Expect(s.StopHeirloom()).To(Succeed())
	s.Expect(s.StartHeirloom(s.ctx)).To(Succeed())
	s.get(secret)
	s.Expect(secret.Data["key"]).To(Equal(before), "a restart keeps the key")

	a := s.abroad("keyed")
	s.get(a.cluster)
	s.update(a.cluster, func() { a.cluster.Labels = map[string]string{workload.AdmissionLabel: workload.AdmitByWebhook} })
	s.Eventually(func() (bool, error) { return s.answered(a) }).WithTimeout(patience).Should(BeTrue())
	path := s.calledPath(a)
	stop := s.ask(a)
	s.Expect(s.Client.Delete(s.ctx, secret)).To(Succeed())
	s.Eventually(func() string { return s.calledPath(a) }).WithTimeout(patience).ShouldNot(Equal(path))
	s.get(secret)
	s.Expect(secret.Data["key"]).NotTo(Equal(before))
	// The API server calls the new path a moment later.
	s.Eventually(func() (bool, error) { return s.answered(a) }).WithTimeout(patience).Should(BeTrue())
	stop()
}

// calledPath returns the URL that the workload cluster's API server calls.
func (s *scene) calledPath(a abroad) string {
	list := &admissionregistrationv1.MutatingWebhookConfigurationList{}
	s.Expect(a.Client.List(s.ctx, list)).To(Succeed())
	s.Expect(list.Items).To(HaveLen(1))
	return *list.Items[0].Webhooks[0].ClientConfig.URL
}

// answered reports whether a Node would inherit at its registration (dry run). The write itself must not fail.
func (s *scene) answered(a abroad) (bool, error) {
	node := stage.Node(a.m.Name)
	err := a.Client.Create(s.ctx, node, client.DryRunAll)
	return strings.Contains(taint.FormatList(node.Spec.Taints), "gpu=true:NoSchedule"), err
}

// ask creates a Node (dry run) again and again until stop, which expects that no write has failed.
func (s *scene) ask(a abroad) (stop func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan error, 1)
	go func() {
		var failed error
		for ctx.Err() == nil {
			_, err := s.answered(a)
			failed = errors.Join(failed, err)
		}
		done <- failed
	}()
	return func() {
		s.t.Helper()
		cancel()
		s.Expect(<-done).To(Succeed())
	}
}

func (s *scene) metrics() string {
	s.t.Helper()
	metrics, err := stage.Metrics(s.ctx, s.MetricsURL)
	s.Expect(err).NotTo(HaveOccurred())
	return metrics
}
