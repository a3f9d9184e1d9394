// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// If the owner overrules a value of another applier, Heirloom takes the field from that applier, like a forced apply: the applier's
// next apply without force is a conflict that names heirloom, not a silent fight.
func TestOverruledApplierSeesAConflict(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	f := s.settle(s.own("conflict"), declared())
	config := func() runtime.ApplyConfiguration {
		return client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": clusterv1.GroupVersion.String(), "kind": "MachineSet",
			"metadata": map[string]any{"namespace": f.ms.Namespace, "name": f.ms.Name, "labels": map[string]any{"team": "mine"}},
		}})
	}
	err := s.Client.Apply(s.ctx, config(), client.FieldOwner("somebody"))
	s.Expect(err).To(MatchError(ContainSubstring(`conflict with "heirloom"`)))
	s.Expect(s.Client.Apply(s.ctx, config(), client.FieldOwner("somebody"), client.ForceOwnership)).To(Succeed())
	s.get(f.ms)
	s.Expect(f.ms.Labels).To(HaveKeyWithValue("team", "ml"))
	for _, entry := range f.ms.ManagedFields {
		if entry.Manager == "somebody" {
			s.Expect(entry.FieldsV1.GetRawString()).NotTo(ContainSubstring("f:team"))
		}
	}
	s.Expect(ours(f.ms)).To(ContainSubstring("f:team"))
}
