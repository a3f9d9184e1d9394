// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// helmRelease is the annotation of objects that Helm installs.
const helmRelease = "meta.helm.sh/release-name"

// nobodyUninstalls says why the Job of the chart's hook must do nothing; empty if Helm or Argo CD has created it to uninstall. Other tools
// that apply rendered manifests, and people who apply the Job alone, would take a running installation apart. Helm does not say in the
// cluster that it uninstalls: until its hooks have succeeded, the release is stored as deployed. So the writer of the Job counts, and
// whether Helm has installed the Deployment. Argo CD applies this hook only when its Application is deleted.
func (s *session) nobodyUninstalls(ctx context.Context) (string, error) {
	job, deployment := &batchv1.Job{}, &appsv1.Deployment{}
	key := types.NamespacedName{Namespace: s.Config.LeaderElectNamespace, Name: s.HookJob}
	if err := s.management.Get(ctx, key, job); err != nil {
		return "", fmt.Errorf("reading the Job of the hook: %w", err)
	}
	writtenBy := func(tool string) bool {
		return slices.ContainsFunc(job.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return e.Subresource == "" && strings.HasPrefix(e.Manager, tool)
		})
	}
	_, applied := job.Annotations[corev1.LastAppliedConfigAnnotation]
	switch {
	case writtenBy("argocd"):
		return "", nil
	case applied, writtenBy("kubectl"):
		return "kubectl or another tool has applied the Job, and not helm uninstall", nil
	}
	key.Name = s.Config.WebhookConfiguration
	err := s.management.Get(ctx, key, deployment)
	if _, byHelm := deployment.Annotations[helmRelease]; err == nil && !byHelm {
		return "Helm has not installed the Deployment " + key.String() + ", so this is not helm uninstall", nil
	}
	return "", client.IgnoreNotFound(err)
}
