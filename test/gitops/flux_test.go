// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"strings"

	statuspolling "github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/jsondiff"
	"github.com/fluxcd/pkg/ssa/normalize"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kustomization is a Kustomization of Flux.
type kustomization struct{}

const kustomizeGroup = "kustomize.toolkit.fluxcd.io"

func (kustomization) manager(s *scene, objects []*unstructured.Unstructured) (*ssa.ResourceManager, []*unstructured.Unstructured) {
	s.t.Helper()
	objects = copies(objects)
	s.Expect(normalize.UnstructuredList(objects)).To(Succeed())
	poller := statuspolling.NewStatusPoller(s.Client, s.Client.RESTMapper(), statuspolling.Options{})
	manager := ssa.NewResourceManager(s.Client, poller, ssa.Owner{Field: "kustomize-controller", Group: kustomizeGroup})
	manager.SetOwnerLabels(objects, "fleet", "flux-system")
	return manager, objects
}

func (k kustomization) apply(s *scene, objects []*unstructured.Unstructured) []string {
	s.t.Helper()
	manager, objects := k.manager(s, objects)
	options := ssa.DefaultApplyOptions()
	// The tool removes the fields of these managers, as the controller does by default.
	options.Cleanup = ssa.ApplyCleanupOptions{
		Annotations: []string{corev1.LastAppliedConfigAnnotation},
		FieldManagers: []ssa.FieldManager{
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationApply},
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationUpdate},
			{Name: "before-first-apply", OperationType: metav1.ManagedFieldsOperationUpdate},
			{Name: "kustomize-controller", OperationType: metav1.ManagedFieldsOperationUpdate},
		},
	}
	changes, err := manager.ApplyAllStaged(s.ctx, objects, options)
	s.Expect(err).NotTo(HaveOccurred())
	var changed []string
	for _, entry := range changes.Entries {
		if entry.Action != ssa.UnchangedAction {
			changed = append(changed, entry.String())
		}
	}
	return changed
}

func (k kustomization) drift(s *scene, objects []*unstructured.Unstructured) []string {
	s.t.Helper()
	manager, objects := k.manager(s, objects)
	var drifted []string
	for _, o := range objects {
		entry, live, wanted, err := manager.Diff(s.ctx, o, ssa.DefaultDiffOptions())
		s.Expect(err).NotTo(HaveOccurred())
		if entry.Action != ssa.UnchangedAction {
			drifted = append(drifted, entry.String(), string(toJSON(s, live)), string(toJSON(s, wanted)))
		}
	}
	return drifted
}

func (kustomization) tracks(key string) bool { return strings.Contains(key, "fluxcd.io") }

// helmRelease is a HelmRelease of Flux: Helm applies its objects, and drift detection compares them.
type helmRelease struct{}

func (helmRelease) objects(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	objects = copies(objects)
	for _, o := range objects {
		labels, annotations := o.GetLabels(), o.GetAnnotations()
		if labels == nil {
			labels = map[string]string{}
		}
		if annotations == nil {
			annotations = map[string]string{}
		}
		labels["app.kubernetes.io/managed-by"] = "Helm"
		labels["helm.toolkit.fluxcd.io/name"], labels["helm.toolkit.fluxcd.io/namespace"] = "heirloom", "heirloom-system"
		annotations["meta.helm.sh/release-name"], annotations["meta.helm.sh/release-namespace"] = "heirloom", "heirloom-system"
		o.SetLabels(labels)
		o.SetAnnotations(annotations)
	}
	return objects
}

func (h helmRelease) apply(s *scene, objects []*unstructured.Unstructured) []string {
	s.t.Helper()
	for _, o := range h.objects(objects) {
		err := s.Client.Apply(s.ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("helm-controller"), client.ForceOwnership)
		s.Expect(err).NotTo(HaveOccurred())
	}
	return nil
}

func (h helmRelease) drift(s *scene, objects []*unstructured.Unstructured) []string {
	s.t.Helper()
	objects = h.objects(objects)
	s.Expect(normalize.UnstructuredListWithScheme(objects, s.Client.Scheme())).To(Succeed())
	dry, err := client.New(s.AdminConfig(), client.Options{DryRun: new(true)})
	s.Expect(err).NotTo(HaveOccurred())
	set, err := jsondiff.UnstructuredList(s.ctx, dry, objects,
		jsondiff.FieldOwner("helm-controller"), jsondiff.Rationalize(true), jsondiff.Graceful(true))
	s.Expect(err).NotTo(HaveOccurred())
	var drifted []string
	for _, diff := range set {
		if diff.Type != jsondiff.DiffTypeNone {
			drifted = append(drifted, diff.DesiredObject.GetName()+" "+diff.Patch.String())
		}
	}
	return drifted
}

func (helmRelease) tracks(key string) bool {
	return strings.Contains(key, "fluxcd.io") || strings.Contains(key, "helm.sh") || key == "app.kubernetes.io/managed-by"
}
