// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// An owner whose provider validates nothing declares entries that the API server accepts in no Machine: they are invalid in every
// object, or exceed the limits in Cluster API's CRD. The Machine is created nevertheless, with the valid entries up to the limits.
func TestOwnersWithoutValidation(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	f := s.settle(s.own("lax"), stage.Declared{})
	taints, gates := make([]any, 65), make([]any, 33)
	for i := range taints {
		taints[i] = map[string]any{"key": fmt.Sprintf("taint-%02d", i), "effect": "NoSchedule", "propagation": "Always"}
	}
	for i := range gates {
		gates[i] = map[string]any{"conditionType": fmt.Sprintf("Gate%02d", i)}
	}
	cp := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "LaxControlPlane",
		"metadata": map[string]any{"namespace": f.m.Namespace, "name": f.m.Name, "labels": map[string]any{clusterv1.ClusterNameLabel: f.cluster.Name}},
		"spec": map[string]any{"machineTemplate": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"team": "ml", "a b": "x", "sentence": "not a value"}, "annotations": map[string]any{"a/b/c": "x"}},
			"spec": map[string]any{
				"taints": taints, "readinessGates": append([]any{map[string]any{"conditionType": "a b"}}, gates...),
				"deletion": map[string]any{"nodeDrainTimeoutSeconds": int64(-1), "nodeDeletionTimeoutSeconds": int64(7)},
			},
		}},
	}}
	s.create(cp)
	m := machineOf(cp, stage.Machine(f.ms, f.m.Name+"-machine"))
	s.create(m)
	s.eventually(m, func(g Gomega) {
		g.Expect(m.Labels).To(And(HaveKeyWithValue("team", "ml"), Not(HaveKey("a b")), Not(HaveKey("sentence"))))
		g.Expect(m.Annotations).NotTo(HaveKey("a/b/c"))
		g.Expect(m.Spec.Taints).To(HaveLen(64))
		g.Expect(m.Spec.ReadinessGates).To(And(HaveLen(32), Not(ContainElement(HaveField("ConditionType", "a b")))))
		g.Expect(m.Spec.Deletion.NodeDrainTimeoutSeconds).To(BeNil())
		g.Expect(m.Spec.Deletion.NodeDeletionTimeoutSeconds).To(HaveValue(BeEquivalentTo(7)))
	})
}
