// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// The keys of the paths are kept in a Secret beside the program, where all replicas find them. While they are replaced,
// every Node that a workload cluster asks about is answered, and no call is denied.
func TestKeysOfWorkloadClusters(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WorkloadWebhook: true})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: stage.Namespace, Name: "heirloom-workload-webhook"}}
	s.eventually(secret, func(g Gomega) { g.Expect(secret.Data).To(HaveKey("current")) })
	before := secret.Data["current"]
	s.Expect(s.StopHeirloom()).To(Succeed())
	s.Expect(s.StartHeirloom(s.ctx)).To(Succeed())
	s.get(secret)
	s.Expect(secret.Data["current"]).To(Equal(before), "a restart keeps the key")

	a := s.abroad("called")
	s.get(a.cluster)
	s.update(a.cluster, func() { a.cluster.Labels = map[string]string{workload.AdmissionLabel: workload.AdmitByWebhook} })
	s.Eventually(func() bool { return s.answered(a) }).WithTimeout(patience).Should(BeTrue())
	path := s.calledPath(a)
	answered, unanswered, stop := s.stream(a)
	// The leader's own steps, at a time when they are due.
	later := time.Now().Add(31 * 24 * time.Hour)
	rotator := webhook.Rotator{
		Shared: rotation.Shared{
			Live: s.Client, Writer: s.Client, Secret: client.ObjectKeyFromObject(secret), Now: func() time.Time { return later },
		},
		Period: 30 * 24 * time.Hour, Grace: webhook.Grace,
	}
	for range 2 {
		_, err := rotator.Rotate(s.ctx)
		s.Expect(err).NotTo(HaveOccurred())
		later = later.Add(webhook.Grace)
	}
	s.get(secret)
	s.Expect(secret.Data["current"]).NotTo(Equal(before))
	s.Expect(secret.Data["previous"]).To(Equal(before))
	s.Eventually(func() string { return s.calledPath(a) }).WithTimeout(patience).ShouldNot(Equal(path))
	// The API server hears of the new path a moment later, and then calls nothing else.
	s.Eventually(answered.Load).WithTimeout(patience).WithPolling(polling).Should(BeNumerically(">=", answered.Load()+20))
	s.Consistently(unanswered.Load).WithTimeout(3 * time.Second).Should(BeZero())
	stop()
	s.Expect(unanswered.Load()).To(BeZero())
	s.Expect(s.metrics()).To(ContainSubstring("heirloom_workload_admission_denied_total 0"))
}

// calledPath is the URL that the workload cluster's API server calls.
func (s *scene) calledPath(a abroad) string {
	list := &admissionregistrationv1.MutatingWebhookConfigurationList{}
	s.Expect(a.Client.List(s.ctx, list)).To(Succeed())
	s.Expect(list.Items).To(HaveLen(1))
	return *list.Items[0].Webhooks[0].ClientConfig.URL
}

// answered reports whether a Node that is about to register inherits.
func (s *scene) answered(a abroad) bool {
	node := stage.Node(a.m.Name)
	return a.Client.Create(s.ctx, node, client.DryRunAll) == nil && strings.Contains(taint.FormatList(node.Spec.Taints), "gpu=true:NoSchedule")
}

// stream asks about a Node again and again until it is stopped. It counts how often the Node inherited, and how often it did not,
// unless the API server waited for an answer as long as it may: the machine was slow then, and no call was refused.
func (s *scene) stream(a abroad) (answered, unanswered *atomic.Int64, stop func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan struct{})
	answered, unanswered = &atomic.Int64{}, &atomic.Int64{}
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			begun := time.Now()
			switch {
			case s.answered(a):
				answered.Add(1)
			case time.Since(begun) < 2*time.Second:
				unanswered.Add(1)
			}
		}
	}()
	return answered, unanswered, func() { cancel(); <-done }
}

func (s *scene) metrics() string {
	s.t.Helper()
	metrics, err := stage.Metrics(s.ctx, s.MetricsURL)
	s.Expect(err).NotTo(HaveOccurred())
	return metrics
}
