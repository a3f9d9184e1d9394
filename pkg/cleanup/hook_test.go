// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The Job of the chart's hook does nothing unless Helm or Argo CD has created it to uninstall.
func TestTheHookLeavesARunningInstallationAlone(t *testing.T) {
	byHelm := map[string]string{helmRelease: "heirloom"}
	applied := map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"}
	for _, tc := range []struct {
		name        string
		manager     string // of the Job
		annotations map[string]string
		deployment  map[string]string // its annotations
		nothing     string
	}{
		{name: "helm uninstall", manager: "helm", deployment: byHelm},
		{name: "Flux", manager: "helm-controller", deployment: byHelm},
		{name: "Argo CD", manager: "argocd-application-controller"},
		{name: "Argo CD, by client-side apply", manager: "argocd-controller", annotations: applied},
		{name: "kubectl create, beside a release", manager: "kubectl-create", deployment: byHelm, nothing: "kubectl or another tool has applied the Job"},
		{name: "an apply, beside a release", manager: "robot", annotations: applied, deployment: byHelm, nothing: "kubectl or another tool has applied the Job"},
		{name: "a tool that applies all manifests", manager: "kustomize-controller", nothing: "Helm has not installed the Deployment heirloom-system/heirloom"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			management := holds(served, append(configurations(),
				&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "heirloom-system", Name: "heirloom", Annotations: tc.deployment}})...)
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "heirloom-system", Name: "heirloom-uninstall", Labels: map[string]string{"a": "b"}, Annotations: tc.annotations}}
			Expect(management.others.Create(t.Context(), job, client.FieldOwner(tc.manager))).To(Succeed())
			r := cleaning(management, Options{OnlyWebhookConfigurations: true, HookJob: "heirloom-uninstall"})
			Expect(r.Run(t.Context())).To(Succeed())
			if tc.nothing == "" {
				Expect(management.written()).To(Equal([]string{deletesMutating, deletesValidating}))
				return
			}
			Expect(management.written()).To(BeEmpty())
			Expect(r.progress.String()).To(HavePrefix("Nothing was done: " + tc.nothing))
		})
	}
}
