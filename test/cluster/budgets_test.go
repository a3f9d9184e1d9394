// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/cluster"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// A disruption budget delays the Node's taint, and the softened taint keeps new Pods away meanwhile. The Pod is evicted once its budget
// allows an eviction. Its successor finds no Node, so the roll-out halts. When the successor is gone, the Node gets the taint. When the
// declaration is removed, nothing is left of the taint.
func TestNoExecuteWithinBudgets(t *testing.T) {
	const name = "budgets"
	drain := func(effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: "drain", Value: "now", Effect: effect}
	}
	r := newRelease(t, "--values", filepath.Join("..", "..", "docs", "examples", "no-execute-budgets", "values.yaml"),
		"--set", "managementCluster="+name+"/"+name, "--set", "tolerations[0].operator=Exists")
	r.settle()
	r.declareNode(name)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: cluster.NodeName}}
	r.eventuallyNode(node, func(g Gomega) { g.Expect(node.Labels).To(HaveKey(inherit.RecordLabel)) })
	pod, budget := r.runWithBudget(name)
	recorder, err := controlplane.RecordVersions(r.ctx, shared.AdminConfig(), corev1.SchemeGroupVersion.WithResource("pods"))
	r.Expect(err).NotTo(HaveOccurred())

	declare := func(always string) {
		md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
		r.Expect(shared.Get(r.ctx, client.ObjectKeyFromObject(md), md)).To(Succeed())
		md.Spec.Template.Annotations[taint.AlwaysAnnotation] = always
		r.Expect(shared.Update(r.ctx, md)).To(Succeed())
	}
	r.step("the budget holds the taint up", func() {
		declare("drain=now:NoExecute")
		r.eventuallyNode(node, func(g Gomega) {
			events := &eventsv1.EventList{}
			g.Expect(shared.List(r.ctx, events, client.InNamespace(name))).To(Succeed())
			g.Expect(events.Items).To(ContainElement(And(HaveField("Reason", "NoExecuteTaintsHeldUp"),
				HaveField("Note", And(ContainSubstring("Pod "+name+"/"+pod.Name), ContainSubstring("disruption budget web"))))))
		})
		r.Expect(inherit.WaitsForPods(node)).To(BeTrue())
		r.Expect(node.Spec.Taints).To(And(ContainElement(drain("NoSchedule")), Not(ContainElement(drain("NoExecute")))))
	})
	r.step("without the budget the Pod leaves, and its successor halts the roll-out", func() {
		r.Expect(shared.Delete(r.ctx, budget)).To(Succeed())
		r.eventuallyNode(node, func(g Gomega) {
			events := &eventsv1.EventList{}
			g.Expect(shared.List(r.ctx, events, client.InNamespace(name))).To(Succeed())
			g.Expect(events.Items).To(ContainElement(And(HaveField("Reason", "NoExecuteTaintsHalted"), HaveField("Type", corev1.EventTypeWarning),
				HaveField("Note", ContainSubstring("1 unschedulable Pods since")), HaveField("Note", ContainSubstring(name+"/web-")))))
		})
		r.Expect(node.Spec.Taints).NotTo(ContainElement(drain("NoExecute")))
	})
	r.step("without the successor the taint comes", func() {
		web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "web"}}
		r.Expect(shared.Patch(r.ctx, web, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`)))).To(Succeed())
		r.eventuallyNode(node, func(g Gomega) {
			g.Expect(node.Spec.Taints).To(ContainElement(HaveField("Effect", corev1.TaintEffectNoExecute)))
		})
		r.Expect(inherit.WaitsForPods(node)).To(BeFalse())
		r.Expect(node.Spec.Taints).NotTo(ContainElement(drain("NoSchedule")))
		left := &corev1.Pod{}
		for _, version := range recorder.Versions(name, pod.Name) {
			r.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(version.Object.Object, left)).To(Succeed())
		}
		r.Expect(left.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.DisruptionTarget), HaveField("Reason", "EvictionByEvictionAPI"))))
		r.Expect(recorder.Stop()).To(Succeed())
	})
	r.step("nobody declares it any more", func() {
		declare("")
		r.eventuallyNode(node, func(g Gomega) { g.Expect(node.Spec.Taints).NotTo(ContainElement(HaveField("Key", "drain"))) })
	})
}

// runWithBudget runs a Pod on the Node, with a budget that allows no eviction.
func (r *release) runWithBudget(namespace string) (pod *corev1.Pod, budget *policyv1.PodDisruptionBudget) {
	r.t.Helper()
	web, one := map[string]string{"app": "web"}, intstr.FromInt32(1)
	metadata := metav1.ObjectMeta{Namespace: namespace, Name: "web", Labels: web}
	budget = &policyv1.PodDisruptionBudget{ObjectMeta: metadata, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: web},
	}}
	r.Expect(shared.Create(r.ctx, budget)).To(Succeed())
	r.Expect(shared.Create(r.ctx, &appsv1.Deployment{ObjectMeta: metadata, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: web},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: web}, Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers:                    []corev1.Container{{Name: "web", Image: cluster.PauseImage, ImagePullPolicy: corev1.PullNever}},
		}},
	}})).To(Succeed())
	pods := &corev1.PodList{}
	r.Eventually(func(g Gomega) {
		g.Expect(shared.Get(r.ctx, client.ObjectKeyFromObject(budget), budget)).To(Succeed())
		g.Expect(budget.Status.CurrentHealthy).To(BeEquivalentTo(1))
		g.Expect(shared.List(r.ctx, pods, client.InNamespace(namespace), client.MatchingLabels(web))).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(1))
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	return &pods.Items[0], budget
}

// declareNode creates the Machine of the cluster's own Node, and all its owners.
func (r *release) declareNode(namespace string) {
	r.t.Helper()
	owner := stage.Cluster(namespace, namespace)
	md := stage.MachineDeployment(owner, namespace, stage.Declared{
		Annotations: map[string]string{taint.AlwaysAnnotation: "dedicated=ml:PreferNoSchedule"}, // which keeps no Pod away
	})
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, owner, md} {
		r.Expect(shared.Create(r.ctx, object)).To(Succeed())
	}
	ms := stage.MachineSet(md, namespace)
	r.Expect(shared.Create(r.ctx, ms)).To(Succeed())
	machine := stage.Machine(ms, namespace)
	machine.Spec.ProviderID = cluster.ProviderID
	r.Expect(shared.Create(r.ctx, machine)).To(Succeed())
}

// eventuallyNode waits until the Node, read anew each time, satisfies the check.
func (r *release) eventuallyNode(node *corev1.Node, check func(g Gomega)) {
	r.t.Helper()
	r.Eventually(func(g Gomega) {
		g.Expect(shared.Get(r.ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		check(g)
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}
