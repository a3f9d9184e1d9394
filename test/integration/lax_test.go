// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// An owner whose provider checks nothing declares what no API server accepts in a Machine. Each write of the Machine passes all
// the same; what is valid arrives, and the rest is named.
func TestOwnersThatCheckNothing(t *testing.T) {
	t.Parallel()
	t.Run("in the write", func(t *testing.T) {
		t.Parallel()
		s := sharedScene(t, admission)
		f := s.settle(s.own("lax"), stage.Declared{})
		cp := laxControlPlane(f.m.Namespace)
		s.create(cp)
		admin, warnings := s.warned()

		m := machineOf(cp, stage.Machine(f.ms, f.m.Name+"-machine"))
		s.Expect(admin.Create(s.ctx, m)).To(Succeed())
		expectTheValid(NewWithT(t), m)
		said := warnings.take()
		for _, left := range leftOutOf(cp) {
			s.Expect(said).To(ContainElement(And(HavePrefix("heirloom: not inherited: "+left[0]), ContainSubstring(left[1]))))
		}
		s.Expect(said).To(HaveLen(len(leftOutOf(cp))))

		before := m.DeepCopy()
		delete(m.Labels, "team")
		s.Expect(admin.Patch(s.ctx, m, client.MergeFrom(before))).To(Succeed())
		expectTheValid(NewWithT(t), m)
		s.Expect(warnings.take()).To(ContainElement(HaveSuffix("to change it, edit LaxControlPlane " + m.Namespace + "/" + cp.GetName() +
			" (spec.machineTemplate.metadata.labels)")))

		infra := infraMachineOf(m)
		s.Expect(admin.Create(s.ctx, infra)).To(Succeed())
		s.Expect(infra.GetLabels()).To(And(HaveKeyWithValue("team", "ml"), Not(HaveKey("a b"))))
		s.Expect(infra.GetAnnotations()).To(And(HaveKey("large"), Not(HaveKey("larger"))))
	})
	t.Run("by the loop", func(t *testing.T) {
		t.Parallel()
		s := sharedScene(t, loop)
		f := s.settle(s.own("lax"), stage.Declared{})
		cp := laxControlPlane(f.m.Namespace)
		s.create(cp)
		m := machineOf(cp, stage.Machine(f.ms, f.m.Name+"-machine"))
		s.create(m)
		s.eventually(m, func(g Gomega) { expectTheValid(g, m) })
		infra := infraMachineOf(m)
		s.create(infra)
		s.eventually(infra, func(g Gomega) {
			g.Expect(infra.GetLabels()).To(And(HaveKeyWithValue("team", "ml"), Not(HaveKey("a b"))))
			g.Expect(infra.GetAnnotations()).To(And(HaveKey("large"), Not(HaveKey("larger"))))
		})
		first := leftOutOf(cp)[0]
		s.expectEvent("NotInherited", "Machine", m.Name, And(HavePrefix(first[0]), ContainSubstring(first[1])))
		s.expectEvent("NotInherited", "FakeMachine", m.Name, And(HavePrefix(first[0]), ContainSubstring(first[1])))
		s.update(m, func() { m.Annotations["touched"] = "yes" })
		s.eventually(m, func(g Gomega) { expectTheValid(g, m) })
	})
}

// laxControlPlane declares something valid and something invalid of each sort.
func laxControlPlane(name string) *unstructured.Unstructured {
	taints := []any{}
	for i := range 63 {
		taints = append(taints, map[string]any{"key": fmt.Sprintf("taint-%02d", i), "effect": "NoSchedule", "propagation": "Always"})
	}
	for _, key := range []string{"once-a", "once-b"} {
		taints = append(taints, map[string]any{"key": key, "effect": "NoSchedule", "propagation": "Initialize"})
	}
	gates := []any{map[string]any{"conditionType": "a b"}}
	for i := range 33 {
		gates = append(gates, map[string]any{"conditionType": fmt.Sprintf("Gate%02d", i)})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "LaxControlPlane",
		"metadata": map[string]any{"namespace": name, "name": name, "labels": map[string]any{clusterv1.ClusterNameLabel: name}},
		"spec": map[string]any{"machineTemplate": map[string]any{
			"metadata": map[string]any{
				"labels": map[string]any{"team": "ml", "a b": "x", "sentence": "not a value"},
				"annotations": map[string]any{
					"note": "x", "a/b/c": "x", "large": strings.Repeat("x", 150<<10), "larger": strings.Repeat("x", 151<<10),
				},
			},
			"spec": map[string]any{
				"taints": taints, "readinessGates": gates,
				"deletion": map[string]any{"nodeDrainTimeoutSeconds": int64(-1), "nodeDeletionTimeoutSeconds": int64(7)},
			},
		}},
	}}
}

// leftOutOf is what Machines of a lax control plane do not inherit: where it is declared, and what it is.
func leftOutOf(cp *unstructured.Unstructured) [][2]string {
	at := func(field string) string {
		return fmt.Sprintf("LaxControlPlane %s/%s (spec.machineTemplate.%s): ", cp.GetNamespace(), cp.GetName(), field)
	}
	return [][2]string{
		{at("metadata.labels"), `label "a b"="x": an API server would refuse it`},
		{at("metadata.labels"), `label "sentence"="not a value": an API server would refuse it`},
		{at("metadata.annotations"), `annotation "a/b/c": an API server would refuse it`},
		{at("metadata.annotations"), `annotation "larger": there is no room for it`},
		{at("spec.deletion.nodeDrainTimeoutSeconds"), `field "nodeDrainTimeoutSeconds": an API server would refuse -1`},
		{at("spec.readinessGates"), `field "a b": an API server would refuse this readiness gate`},
		{at("spec.readinessGates"), `field "Gate32": there is no room for it`},
		{at("spec.taints"), `taint "once-b:NoSchedule": there is no room for it`},
	}
}

func expectTheValid(g Gomega, m *clusterv1.Machine) {
	g.Expect(m.Labels).To(And(HaveKeyWithValue("team", "ml"), Not(HaveKey("a b")), Not(HaveKey("sentence"))))
	g.Expect(m.Annotations).To(And(HaveKeyWithValue("note", "x"), HaveKey("large"), Not(HaveKey("larger")), Not(HaveKey("a/b/c"))))
	g.Expect(m.Spec.Taints).To(And(HaveLen(64), ContainElement(And(HaveField("Key", "once-a"), HaveField("Propagation", clusterv1.MachineTaintPropagationOnInitialization)))))
	g.Expect(m.Spec.ReadinessGates).To(HaveLen(32))
	g.Expect(m.Spec.Deletion.NodeDrainTimeoutSeconds).To(BeNil())
	g.Expect(m.Spec.Deletion.NodeDeletionTimeoutSeconds).To(HaveValue(BeEquivalentTo(7)))
}

// machineOf makes a Machine one of the control plane.
func machineOf(cp *unstructured.Unstructured, m *clusterv1.Machine) *clusterv1.Machine {
	m.Labels = map[string]string{clusterv1.ClusterNameLabel: m.Spec.ClusterName, clusterv1.MachineControlPlaneLabel: ""}
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cp, cp.GroupVersionKind())}
	m.Spec.InfrastructureRef.Name = m.Name
	return m
}

// infraMachineOf is the InfraMachine of a Machine.
func infraMachineOf(m *clusterv1.Machine) *unstructured.Unstructured {
	infra := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	infra.SetAPIVersion(fakeMachine().apiVersion)
	infra.SetKind(fakeMachine().kind)
	infra.SetNamespace(m.Namespace)
	infra.SetName(m.Name)
	infra.SetLabels(map[string]string{clusterv1.ClusterNameLabel: m.Spec.ClusterName})
	infra.SetOwnerReferences([]metav1.OwnerReference{stage.ControlledBy(m, "Machine")})
	return infra
}

// warnings are those that an API server has sent.
type warnings struct {
	mu   sync.Mutex
	said []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

// take returns what has been said since it was last asked.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := slices.Clone(w.said)
	w.said = nil
	return said
}

// warned is an administrator's client, and the warnings that it gets.
func (s *scene) warned() (client.Client, *warnings) {
	s.t.Helper()
	config, heard := s.AdminConfig(), &warnings{}
	config.WarningHandler = heard
	c, err := client.New(config, client.Options{Scheme: stage.Scheme()})
	s.Expect(err).NotTo(HaveOccurred())
	return c, heard
}
