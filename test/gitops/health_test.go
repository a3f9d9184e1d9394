// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"path/filepath"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// bareScene returns a scene without an API server.
func bareScene(t *testing.T) *scene {
	t.Helper()
	return &scene{WithT: NewWithT(t), t: t, ctx: t.Context()}
}

// rendered returns the chart's objects with default values, including its hooks.
func rendered(s *scene) []*unstructured.Unstructured {
	s.t.Helper()
	options := controlplane.ChartOptions{Namespace: stage.Namespace, Hooks: true}
	all, err := controlplane.RenderChart(s.ctx, filepath.Join("deploy", "chart", "heirloom"), options)
	s.Expect(err).NotTo(HaveOccurred())
	var objects []*unstructured.Unstructured
	for i := range all {
		raw, err := all[i].MarshalJSON() // numbers become int64 again, as clients decode them
		s.Expect(err).NotTo(HaveOccurred())
		s.Expect(all[i].UnmarshalJSON(raw)).To(Succeed())
		objects = append(objects, &all[i])
	}
	return objects
}

func conditions(all ...string) map[string]any {
	var list []any
	for i := 0; i < len(all); i += 3 {
		list = append(list, map[string]any{"type": all[i], "status": all[i+1], "reason": all[i+2]})
	}
	return map[string]any{"conditions": list}
}

// with adds fields to a status.
func with(status map[string]any, fields map[string]any) map[string]any {
	for key, value := range fields {
		status[key] = value
	}
	return status
}

func counts(ready int64) map[string]any {
	return map[string]any{
		"observedGeneration": int64(1), "replicas": int64(2), "updatedReplicas": int64(2),
		"readyReplicas": ready, "availableReplicas": ready, "unavailableReplicas": 2 - ready,
	}
}

// Argo CD and Flux report the chart's objects as healthy when they work, and not before.
func TestHealth(t *testing.T) {
	s := bareScene(t)
	for _, tc := range []struct {
		name, kind string
		status     map[string]any
		argoCD     string
		flux       status.Status
	}{
		{"Pods wait for Cluster API", "Deployment",
			with(counts(0), conditions("Available", "False", "MinimumReplicasUnavailable", "Progressing", "True", "ReplicaSetUpdated")),
			"Progressing", status.InProgressStatus},
		{"Pods wait for too long", "Deployment",
			with(counts(0), conditions("Available", "False", "MinimumReplicasUnavailable", "Progressing", "False", "ProgressDeadlineExceeded")),
			"Degraded", status.FailedStatus},
		{"Pods are ready", "Deployment",
			with(counts(2), conditions("Available", "True", "MinimumReplicasAvailable", "Progressing", "True", "NewReplicaSetAvailable")),
			"Healthy", status.CurrentStatus},
		{"no certificate yet", "Certificate",
			conditions("Ready", "False", "DoesNotExist", "Issuing", "True", "DoesNotExist"), "Progressing", status.InProgressStatus},
		{"certificate", "Certificate", conditions("Ready", "True", "Ready"), "Healthy", status.CurrentStatus},
		{"issuer", "Issuer", conditions("Ready", "True", "KeyPairVerified"), "Healthy", status.CurrentStatus},
		{"no CA yet", "Issuer", conditions("Ready", "False", "SecretMissing"), "Degraded", status.InProgressStatus},
	} {
		t.Run(tc.kind+": "+tc.name, func(t *testing.T) {
			s := s.in(t)
			found := false
			for _, o := range rendered(s) {
				if o.GetKind() != tc.kind {
					continue
				}
				found = true
				o.SetGeneration(1)
				o.Object["status"] = tc.status
				s.Expect(argo{application: application(nil, "")}.ask(s, "health", []*unstructured.Unstructured{o})[0].Health).To(Equal(tc.argoCD))
				result, err := status.Compute(o)
				s.Expect(err).NotTo(HaveOccurred())
				s.Expect(result.Status).To(Equal(tc.flux), result.Message)
			}
			s.Expect(found).To(BeTrue(), "the chart has one")
		})
	}
}

// All other objects of the chart have no status, so they must be healthy from the start: no tool waits for them.
func TestHealthOfTheRest(t *testing.T) {
	s := bareScene(t)
	var rest []*unstructured.Unstructured
	for _, o := range rendered(s) {
		switch o.GetKind() {
		case "Deployment", "Certificate", "Issuer", "Job", "PodDisruptionBudget":
		default:
			rest = append(rest, o)
		}
	}
	s.Expect(len(rest)).To(BeNumerically(">", 8))
	for i, verdict := range (argo{application: application(nil, "")}).ask(s, "health", rest) {
		s.Expect(verdict.Health).To(BeElementOf("", "Healthy"), rest[i].GetKind())
		result, err := status.Compute(rest[i])
		s.Expect(err).NotTo(HaveOccurred())
		s.Expect(result.Status).To(Equal(status.CurrentStatus), rest[i].GetKind())
	}
}

// Argo CD treats the chart's objects for its deletion as hooks that no sync applies, and may delete them after they succeed. From v3.3
// on, Argo CD runs objects with exactly this annotation before it deletes an Application.
func TestNoSyncAppliesTheHooks(t *testing.T) {
	s := bareScene(t)
	objects := rendered(s)
	hooks := 0
	for i, verdict := range (argo{application: application(nil, "")}).ask(s, "hooks", objects) {
		o := objects[i]
		s.Expect(o.GetAnnotations()).NotTo(HaveKey(HavePrefix("argocd.argoproj.io/")), "Argo CD would ignore Helm's hooks")
		if o.GetLabels()["app.kubernetes.io/component"] != "uninstall" {
			s.Expect(verdict.Hook).To(BeFalse(), o.GetName())
			continue
		}
		hooks++
		s.Expect(o.GetAnnotations()).To(HaveKeyWithValue("helm.sh/hook", "pre-delete"))
		s.Expect(verdict.Hook).To(BeTrue(), o.GetKind())
		s.Expect(verdict.Phases).To(BeEmpty(), o.GetKind())
		s.Expect(verdict.Deletion).To(ConsistOf("BeforeHookCreation", "HookSucceeded"), o.GetKind())
		if o.GetKind() == "Job" {
			s.Expect(verdict.Wave).To(BeNumerically(">", -10))
			retries, _, err := unstructured.NestedInt64(o.Object, "spec", "backoffLimit")
			s.Expect(err).NotTo(HaveOccurred())
			s.Expect(retries).To(BeNumerically(">", 0), "Argo CD creates it together with its rights")
		} else {
			s.Expect(verdict.Wave).To(Equal(-10))
		}
	}
	s.Expect(hooks).To(BeNumerically(">=", 4))
}
