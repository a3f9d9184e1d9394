// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// What the InfraMachine and the Machine know becomes labels of the Node with the values of the example. The labels follow, and go with the fact;
// a label that somebody else has set stays as it is.
func TestFacts(t *testing.T) {
	t.Parallel()
	root, err := controlplane.RepositoryRoot(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	s := newScene(t, stage.Options{Args: factsOfExample(t, root), FailClosed: true})
	const size, rack, zone = "node.example.com/instance-type", "node.example.com/rack", "topology.kubernetes.io/zone"
	f := s.settle("facts", stage.Declared{})
	f.m.Spec.FailureDomain = ""
	infra := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"instanceType": "m7.large"}}}
	infra.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	infra.SetKind("FakeMachine")
	infra.SetNamespace(f.m.Namespace)
	infra.SetName(f.m.Spec.InfrastructureRef.Name)
	infra.SetLabels(map[string]string{"inventory.example.com/rack": "r7", "cluster.x-k8s.io/cluster-name": f.m.Spec.ClusterName})
	infra.SetOwnerReferences(append(infra.GetOwnerReferences(), stage.ControlledBy(f.m, "Machine")))
	s.create(infra)
	s.update(f.m, func() { f.m.Spec.FailureDomain = "zone-a" })

	node := stage.Node(f.m.Name)
	node.Labels[rack] = "by-hand"
	s.Expect(s.kubelet(f.m.Name).Create(s.ctx, node)).To(Succeed())
	s.eventually(node, func(g Gomega) {
		g.Expect(node.Labels).To(And(HaveKeyWithValue(size, "m7.large"), HaveKeyWithValue(zone, "zone-a"), HaveKeyWithValue(rack, "by-hand")))
	})
	kubeconfig := filepath.Join(s.dir, "admin.kubeconfig")
	s.Expect(s.WriteKubeconfig(kubeconfig, "admin", "system:masters")).To(Succeed())
	_, stderr, err := controlplane.Kubectl(s.ctx, kubeconfig, "label", "--overwrite", "node", node.Name, size+"=xl")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(stderr).To(ContainSubstring("edit FakeMachine " + infra.GetNamespace() + "/" + infra.GetName() + " (spec.instanceType)"))

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

// factsOfExample are the arguments that the chart makes of the example's values, for the kind that the scene has.
func factsOfExample(t *testing.T, root string) (args []string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	values := map[string]any{"certificates": map[string]any{"mode": "self"}}
	s := scene{WithT: NewWithT(t), t: t}
	example := strings.ReplaceAll(s.read(filepath.Join(root, "docs", "examples", "facts", "values.yaml")), "AWSMachine", "FakeMachine")
	Expect(yaml.Unmarshal([]byte(example), &values)).To(Succeed())
	objects, err := controlplane.RenderChart(t.Context(), filepath.Join(root, "deploy", "chart", "heirloom"), controlplane.ChartOptions{Namespace: stage.Namespace, Values: values})
	Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
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
