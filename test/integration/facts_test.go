// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// With the example's values, fields of the InfraMachine and the Machine become labels of the Node. The labels follow a change and are
// removed with the field; a label that another user has set stays unchanged.
func TestFacts(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{Args: factsOfExample(t), FailClosed: true})
	const size, rack, zone = "node.example.com/instance-type", "node.example.com/rack", "topology.kubernetes.io/zone"
	f := s.settle("facts", stage.Declared{})
	infra := infraMachine(f.m)
	infra.SetLabels(labels.Merge(infra.GetLabels(), map[string]string{"inventory.example.com/rack": "r7"}))
	infra.Object["spec"] = map[string]any{"instanceType": "m7.large"}
	s.create(infra)
	s.update(f.m, func() { f.m.Spec.FailureDomain = "zone-a" })

	node := stage.Node(f.m.Name)
	node.Labels[rack] = "by-hand"
	s.Expect(s.kubelet(f.m.Name).Create(s.ctx, node)).To(Succeed())
	s.eventually(node, func(g Gomega) {
		g.Expect(node.Labels).To(And(HaveKeyWithValue(size, "m7.large"), HaveKeyWithValue(zone, "zone-a"), HaveKeyWithValue(rack, "by-hand")))
	})
	s.Expect(s.byKubectl("label", "--overwrite", "node", node.Name, size+"=xl")).
		To(ContainSubstring("edit FakeMachine " + infra.GetNamespace() + "/" + infra.GetName() + " (spec.instanceType)"))

	s.update(infra, func() {
		s.Expect(unstructured.SetNestedField(infra.Object, "m8.large", "spec", "instanceType")).To(Succeed())
	})
	s.eventually(node, func(g Gomega) { g.Expect(node.Labels).To(HaveKeyWithValue(size, "m8.large")) })
	s.update(infra, func() { unstructured.RemoveNestedField(infra.Object, "spec", "instanceType") })
	s.eventually(node, func(g Gomega) {
		g.Expect(node.Labels).NotTo(HaveKey(size))
		g.Expect(node.Labels).To(And(HaveKeyWithValue(zone, "zone-a"), HaveKeyWithValue(rack, "by-hand")))
	})
}

// factsOfExample returns the arguments that the chart renders from the example's values, for the scene's InfraMachine kind.
func factsOfExample(t *testing.T) (args []string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	values := map[string]any{"certificates": map[string]any{"mode": "self"}}
	example, err := os.ReadFile(examplesDir("facts", "values.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(yaml.Unmarshal(bytes.ReplaceAll(example, []byte("AWSMachine"), []byte("FakeMachine")), &values)).To(Succeed())
	for _, object := range render(t, values) {
		containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		for _, container := range containers {
			all, _, _ := unstructured.NestedStringSlice(container.(map[string]any), "args")
			for _, arg := range all {
				if strings.HasPrefix(arg, "--node-fact=") {
					args = append(args, arg)
				}
			}
		}
	}
	Expect(args).To(HaveLen(3))
	return args
}
