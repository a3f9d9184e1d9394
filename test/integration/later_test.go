// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// A provider may come after Heirloom, and serve its kinds in a version that no other kind of the group has. The loop finds them.
func TestKindsInAVersionThatComesLater(t *testing.T) {
	t.Parallel()
	s := sceneOn(t, lendLast(t, controlplane.Options{}), stage.Options{WithoutWebhooks: true})
	f := s.settle("later", declared())
	s.inherits("team", "ml", f.m)

	for _, group := range []string{inherit.InfrastructureGroup, inherit.BootstrapGroup, inherit.ControlPlaneGroup} {
		s.install(group, "Late", "v1alpha1")
	}
	late := func(group, name string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
		u := brokenKind{group: group, kind: "Late"}.object(name, f.cluster.Name, owners...)
		u.SetAPIVersion(group + "/v1alpha1")
		return u
	}
	cp := late(inherit.ControlPlaneGroup, "cp")
	s.create(cp)
	m := stage.Machine(f.ms, "late")
	m.Spec.InfrastructureRef.Kind, m.Spec.InfrastructureRef.Name = "Late", "late"
	m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: inherit.BootstrapGroup, Kind: "Late", Name: "late"}
	s.create(m)
	for _, group := range []string{inherit.InfrastructureGroup, inherit.BootstrapGroup} {
		external := late(group, "late", *metav1.NewControllerRef(m, clusterv1.GroupVersion.WithKind("Machine")))
		s.create(external)
		s.eventually(external, func(g Gomega) { g.Expect(external.GetLabels()).To(HaveKeyWithValue("team", "ml"), group) })
	}
	controlled := stage.Machine(f.ms, "controlled")
	controlled.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cp, cp.GroupVersionKind())}
	s.create(controlled)
	s.inherits("declared", "Late", controlled)
}

// An upgrade of a provider may take away the version that Heirloom has read for long. It goes on in the one that is served now.
func TestAProviderThatServesAnotherVersion(t *testing.T) {
	t.Parallel()
	s := sceneOn(t, lendLast(t, controlplane.Options{}), stage.Options{WithoutWebhooks: true, Args: []string{"--sync-period=5s"}})
	f := s.settle("upgraded", declared())
	crd := s.install(inherit.ControlPlaneGroup, "Upgraded", "v1alpha1")
	cp := brokenKind{group: inherit.ControlPlaneGroup, kind: "Upgraded"}.object("cp", f.cluster.Name)
	cp.SetAPIVersion(inherit.ControlPlaneGroup + "/v1alpha1")
	s.create(cp)
	m := stage.Machine(f.ms, "controlled")
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cp, cp.GroupVersionKind())}
	s.create(m)
	s.inherits("declared", "Upgraded", m)

	before, old := crd.DeepCopy(), anyVersion("v1alpha1", false)
	old["served"] = false
	s.Expect(unstructured.SetNestedSlice(crd.Object, []any{anyVersion("v1beta1", true), old}, "spec", "versions")).To(Succeed())
	s.Expect(s.Client.Patch(s.ctx, crd, client.MergeFrom(before))).To(Succeed())
	cp.SetAPIVersion(inherit.ControlPlaneGroup + "/v1beta1")
	for _, value := range []string{"once", "twice"} {
		patch := fmt.Appendf(nil, `{"spec":{"machineTemplate":{"metadata":{"labels":{"declared":%q}}}}}`, value)
		s.Eventually(func() error { return s.Client.Patch(s.ctx, cp, client.RawPatch(types.MergePatchType, patch)) }).
			WithTimeout(patience).WithPolling(polling).Should(Succeed(), "it is served")
		s.inherits("declared", value, m)
	}
}

// install installs a kind that takes anything, in one version.
func (s *scene) install(group, kind, version string) *unstructured.Unstructured {
	s.t.Helper()
	plural := strings.ToLower(kind) + "s"
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names":    map[string]any{"kind": kind, "listKind": kind + "List", "plural": plural, "singular": strings.ToLower(kind)},
			"versions": []any{anyVersion(version, true)},
		},
	}}
	s.establish(crd)
	return crd
}

// anyVersion is a version of a kind that takes anything.
func anyVersion(name string, storage bool) map[string]any {
	anything := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	return map[string]any{"name": name, "served": true, "storage": storage, "schema": map[string]any{"openAPIV3Schema": anything}}
}

// establish installs a kind, and waits until the API server serves it and says so. A client that asks earlier finds no such kind.
func (s *scene) establish(crd *unstructured.Unstructured) {
	s.t.Helper()
	content, err := crd.MarshalJSON()
	s.Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(s.t.TempDir(), crd.GetName()+".yaml")
	s.Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
	s.Expect(s.InstallCRDs(s.ctx, file)).To(Succeed())
}
