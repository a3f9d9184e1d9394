// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// What the chart's hook does while Heirloom is at work: afterwards nothing of Heirloom is in any object of any kind, in
// either cluster, and what is other people's is as it was. All with the rights of the hook's ServiceAccount.
func TestReleaseLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WorkloadWebhook: true, Args: []string{
		"--additional-sync-machine-labels=^team$", "--additional-sync-machine-annotations=^note$",
	}})
	fleet := newFleet(s, fleetName)
	home, red, blue := s.settle("home", declared()), s.abroad("red"), s.abroad("blue")
	s.admitted(red, workload.AdmitByWebhook)
	s.admitted(blue, blue.byDefault())
	s.othersWrite(home)
	complete := func(g Gomega, node *corev1.Node) {
		g.Expect(node.Labels).To(And(HaveKeyWithValue("team", "ml"), HaveKey("node-role.kubernetes.io/worker")))
		g.Expect(node.Annotations).To(And(HaveKeyWithValue("note", "for humans"), HaveKey(inherit.LabelsFromMachineAnnotation)))
	}
	node := s.registered("home", complete)
	for _, a := range []abroad{red, blue} {
		abroad := stage.Node(a.m.Name)
		s.Expect(a.Client.Create(s.ctx, abroad)).To(Succeed())
		s.eventuallyNode(a, abroad, func(g Gomega) { complete(g, abroad) })
	}
	s.update(node, func() {
		node.Labels["mine"] = "yes"
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoSchedule})
	})
	for _, child := range fleet.children {
		s.eventually(child, func(g Gomega) { g.Expect(ours(child)).NotTo(BeEmpty(), "%T %s", child, child.GetName()) })
	}
	all := func() []unstructured.Unstructured {
		return append(append(s.everything(s.ControlPlane), s.everything(red.ControlPlane)...), s.everything(blue.ControlPlane)...)
	}
	s.Expect(remains(all())).NotTo(BeEmpty())

	h := s.hook(map[string]any{
		"uninstall": map[string]any{"release": true, "keepValues": false}, "workloadClusters": map[string]any{"webhookURL": s.WorkloadURL},
	})
	before := stored(inheriting(all()))
	dry := h.run("--dry-run")
	s.Expect(dry.err).NotTo(HaveOccurred(), dry.stderr)
	s.Expect(cmp.Diff(before, stored(inheriting(all())))).To(BeEmpty(), "a dry run writes nothing")
	s.Expect(dry.stdout).To(And(
		ContainSubstring("machine.cluster.x-k8s.io/home released in namespace home (dry run)\n"), ContainSubstring("  .metadata.annotations.note\n"),
		ContainSubstring(`  .spec.taints[effect="NoSchedule",key="annotated"]`)))

	ended := s.endsWith(h.deployment())
	done := h.run()
	s.Expect(done.err).NotTo(HaveOccurred(), done.stderr)
	s.Expect(<-ended).To(Succeed(), "it was scaled to zero")
	s.Expect(done.released()).To(Equal(dry.released()), "a dry run says what happens")
	s.Expect(remains(all())).To(BeEmpty())

	s.expectOnlyOthers(home)
	for _, child := range fleet.children {
		s.get(child)
		s.Expect(child.GetLabels()).NotTo(Or(HaveKey("class"), HaveKey("cluster")), "%T %s", child, child.GetName())
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: stage.Namespace, Name: "heirloom-workload-webhook"}}
	s.Expect(apierrors.IsNotFound(s.Client.Get(s.ctx, client.ObjectKeyFromObject(secret), secret))).To(BeTrue())

	before = stored(inheriting(all()))
	second := h.run()
	s.Expect(second.err).NotTo(HaveOccurred(), second.stderr)
	s.Expect(second.released()).To(BeEmpty())
	s.Expect(cmp.Diff(before, stored(inheriting(all())))).To(BeEmpty(), "a second run changes nothing")
}

// admitted chooses how the Nodes of a workload cluster are admitted, and waits until the loop has set that up and nothing else.
func (s *scene) admitted(a abroad, way string) {
	s.t.Helper()
	s.get(a.cluster)
	s.update(a.cluster, func() { a.cluster.Labels = map[string]string{workload.AdmissionLabel: way} })
	s.Eventually(func(g Gomega) { g.Expect(s.ways(a.Client)).To(Equal([]string{way})) }).WithTimeout(patience).Should(Succeed())
}

// ways are those in which a workload cluster admits Nodes.
func (s *scene) ways(c client.Client) []string {
	s.t.Helper()
	var found []string
	for way, object := range map[string]client.Object{
		workload.AdmitByWebhook: &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhook.ObjectName}},
		workload.AdmitByPolicy:  &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policy.Name}},
	} {
		err := c.Get(s.ctx, client.ObjectKeyFromObject(object), object)
		if meta.IsNoMatchError(err) {
			continue // its API server serves no such kind
		}
		s.Expect(client.IgnoreNotFound(err)).To(Succeed())
		if err == nil {
			found = append(found, way)
		}
	}
	return found
}

// othersWrite makes a user and Cluster API's own controller own a part of a Machine, one of it in common with Heirloom.
func (s *scene) othersWrite(f family) {
	s.t.Helper()
	s.get(f.m)
	s.update(f.m, func() { f.m.Labels["mine"] = "yes" })
	shared := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusterv1.GroupVersion.String(), "kind": "Machine",
		"metadata": map[string]any{"namespace": f.m.Namespace, "name": f.m.Name, "labels": map[string]any{"team": "ml"}},
		"spec": map[string]any{"taints": []any{
			map[string]any{"key": "gpu", "value": "true", "effect": "NoSchedule", "propagation": "Always"},
		}},
	}}
	s.Expect(s.Client.Apply(s.ctx, client.ApplyConfigurationFromUnstructured(shared), client.FieldOwner("capi-machineset"), client.ForceOwnership)).To(Succeed())
}

// expectOnlyOthers expects of a family what othersWrite and the API server itself have made of it.
func (s *scene) expectOnlyOthers(f family) {
	s.t.Helper()
	bareSet, bare := stage.MachineSet(f.md, "bare-set"), stage.Machine(f.ms, "bare")
	s.Expect(s.Client.Create(s.ctx, bareSet, client.DryRunAll)).To(Succeed())
	s.Expect(s.Client.Create(s.ctx, bare, client.DryRunAll)).To(Succeed())
	s.get(f.ms)
	s.Expect(f.ms.Labels).To(Equal(withHash(bareSet.Labels, f.ms.Name)))
	bareSet.Spec.Selector, bareSet.Spec.Template.Labels = f.ms.Spec.Selector, withHash(bareSet.Spec.Template.Labels, f.ms.Name)
	s.Expect(f.ms.Spec).To(Equal(bareSet.Spec))

	s.get(f.m)
	bare.Labels["mine"], bare.Labels["team"] = "yes", "ml"
	bare.Spec.Taints, bare.Spec.ProviderID = stage.Taints(clusterv1.MachineTaintPropagationAlways, "gpu=true:NoSchedule"), f.m.Spec.ProviderID
	bare.Spec.InfrastructureRef.Name = f.m.Name
	s.Expect(f.m.Labels).To(Equal(bare.Labels))
	s.Expect(f.m.Annotations).To(BeEmpty())
	s.Expect(f.m.Spec).To(Equal(bare.Spec), "what Cluster API owns too stays")
	selector, err := metav1.LabelSelectorAsSelector(&f.ms.Spec.Selector)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(selector.Matches(labels.Set(f.m.Labels))).To(BeTrue())

	node := stage.Node(f.m.Name)
	s.get(node)
	s.Expect(node.Labels).To(And(HaveKeyWithValue("mine", "yes"), HaveKey("node-role.kubernetes.io/worker"), Not(HaveKey("team"))))
	s.Expect(node.Annotations).To(And(HaveKey(clusterv1.LabelsFromMachineAnnotation), Not(HaveKey("note"))))
	s.Expect(taint.FormatList(node.Spec.Taints)).To(And(
		ContainSubstring("mine:NoSchedule"), ContainSubstring("gpu=true:NoSchedule")), "what Cluster API tracks is its own")
}

// Values stay where that is wanted, but for the guard taint; the selectors' labels were never ours. Without the flags that
// stop Heirloom, nothing is done while it is at work.
func TestReleaseKeepsValues(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WithoutLoop: true, FailClosed: true})
	f := s.settle("kept", declared())
	node := stage.Node("kept")
	s.admit(s.kubelet("kept"), node)
	s.Expect(node.Annotations).To(HaveKey(inherit.UninitializedAnnotation))
	s.get(f.m)
	inherited, spec := f.m.Labels, f.m.Spec
	admin := s.asAdministrator()

	refused := admin.run()
	s.Expect(refused.err).To(HaveOccurred())
	s.Expect(refused.stderr).To(And(ContainSubstring(`the webhook configurations "heirloom" are still there`), ContainSubstring("--stop")))
	refused = admin.run("--only-webhook-configurations")
	s.Expect(refused.err).NotTo(HaveOccurred(), refused.stderr)
	s.Expect(refused.released()).To(HaveLen(2))
	refused = admin.run()
	s.Expect(refused.err).To(HaveOccurred())
	s.Expect(refused.stderr).To(And(ContainSubstring("the-stage leads Heirloom"), ContainSubstring("--stop")))
	s.get(f.m)
	s.Expect(ours(f.m)).NotTo(BeEmpty(), "nothing has been done")

	s.releaseLease()
	kept := admin.run("--keep-values")
	s.Expect(kept.err).NotTo(HaveOccurred(), kept.stderr)
	s.Expect(remains(s.everything(s.ControlPlane))).To(BeEmpty())
	s.get(f.m)
	s.Expect(f.m.Labels).To(Equal(inherited))
	s.Expect(f.m.Spec).To(Equal(spec))
	s.get(node)
	s.Expect(taint.FormatList(node.Spec.Taints)).To(And(ContainSubstring("annotated=yes:NoSchedule"), Not(ContainSubstring("uninitialized"))))
}

// Where several share a management cluster, each gives up its own.
func TestReleaseWithinItsScope(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WithoutLoop: true, FailClosed: true, Args: []string{taintGate + "disabled", "--management-cluster=mine/mine"}})
	mine, theirs := s.settleIn("mine", "mine", declared()), s.settleIn("theirs", "theirs", declared())
	registered := stage.Node("mine")
	s.admit(s.kubelet("mine"), registered)
	s.update(registered, func() { registered.Labels = map[string]string{"mine": "yes"} }) // what a kubelet has written alone is not recorded
	s.create(stage.Node("theirs"))
	for _, f := range []family{mine, theirs} {
		infra := infraMachine(f.m)
		infra.SetName(f.m.Name)
		s.update(f.m, func() { f.m.Spec.InfrastructureRef.Name = f.m.Name; f.m.Labels[clusterv1.WatchLabel] = f.m.Name })
		s.admit(s.Client, infra)
	}
	s.releaseLease()
	admin := s.asAdministrator()
	s.Expect(admin.run("--only-webhook-configurations").err).NotTo(HaveOccurred())
	untouched := func() []unstructured.Unstructured {
		return []unstructured.Unstructured{s.stored("Machine", "theirs"), s.stored("FakeMachine", "theirs"), s.stored("Node", "theirs")}
	}
	before := stored(untouched())
	node := stage.Node("mine")
	s.get(node)
	s.Expect(taint.FormatList(node.Spec.Taints)).To(ContainSubstring("annotated=yes:NoSchedule"))

	dry := admin.run("--watch-filter=mine", "--dry-run")
	s.Expect(dry.released()).To(Equal([]string{
		"fakemachine.infrastructure.cluster.x-k8s.io/mine released in namespace mine",
		"machine.cluster.x-k8s.io/mine released in namespace mine",
		"node/mine released",
	}), dry.stderr)
	done := admin.run("--namespace=mine")
	s.Expect(done.err).NotTo(HaveOccurred(), done.stderr)
	s.Expect(remains([]unstructured.Unstructured{s.stored("Machine", "mine"), s.stored("FakeMachine", "mine"), s.stored("Node", "mine")})).To(BeEmpty())
	s.get(node)
	s.Expect(taint.FormatList(node.Spec.Taints)).NotTo(ContainSubstring("annotated"), "only Heirloom knows of it")
	s.Expect(cmp.Diff(before, stored(untouched()))).To(BeEmpty())
	s.Expect(remains(untouched())).NotTo(BeEmpty())
}

// endsWith ends the program once its Deployment is scaled to zero, as its Pods would, and then tells how that went.
func (s *scene) endsWith(deployment *appsv1.Deployment) <-chan error {
	s.t.Helper()
	s.create(deployment)
	ended := make(chan error, 1)
	go func() {
		err := wait.PollUntilContextCancel(s.ctx, polling, true, func(ctx context.Context) (bool, error) {
			err := s.Client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)
			return err == nil && *deployment.Spec.Replicas == 0, err
		})
		ended <- errors.Join(err, s.StopHeirloom())
	}()
	return ended
}

// asAdministrator is heirloom release without any flags that the chart would give it.
func (s *scene) asAdministrator() hook {
	s.t.Helper()
	kubeconfig := s.dir + "/admin.kubeconfig"
	s.Expect(s.WriteKubeconfig(kubeconfig, "admin", "system:masters")).To(Succeed())
	return hook{scene: s, kubeconfig: kubeconfig, args: []string{"release", "--leader-elect-namespace=" + stage.Namespace}}
}
