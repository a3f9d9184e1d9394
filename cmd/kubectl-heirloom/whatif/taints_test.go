// SPDX-License-Identifier: Apache-2.0

package whatif_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/whatif"
)

// declaring is the file of MachineDeployment md with these taints.
func declaring(list string) string {
	annotations := "annotations: {taints.heirloom.dev/always: '" + list + "'}"
	return strings.Replace(machineDeployment, "labels: {node.cluster.x-k8s.io/team: ml}", annotations, 1)
}

func pod(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}}}
	p.Spec.NodeName = node
	for _, one := range change {
		one(p)
	}
	return p
}

func tolerating(t corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, t) }
}

func budget(namespace, name, app string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}
}

// busy is the small world with Pods.
func busy() *world {
	w := small()
	gpu := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}
	forAWhile := gpu
	forAWhile.TolerationSeconds = ptr.To(int64(300))
	ofDaemonSet := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: new(true)}}
	}
	static := func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }
	done := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	other := corev1.Toleration{Key: "gpu", Value: "other", Effect: corev1.TaintEffectNoExecute}
	w.workload = append(w.workload,
		pod("web", "m-0"), pod("picky", "m-1", tolerating(other)), pod("slow", "m-1", tolerating(forAWhile)), pod("gpu", "m-1", tolerating(gpu)),
		pod("agent", "m-2", ofDaemonSet), pod("static", "m-2", static), pod("done", "m-2", done), pod("elsewhere", "other"),
		budget("default", "web", "web"), budget("other", "web", "web"), budget("default", "gpu", "gpu"),
	)
	return w
}

func TestTaintsThatEvict(t *testing.T) {
	result := busy().answer(t, declaring("gpu=yes:NoExecute"))
	expectGolden(t, "noexecute", printed(t, result, false))
	NewWithT(t).Expect(result.Pace).To(HaveValue(Equal(whatif.Pace{Nodes: 3, NodesAMinute: 1, LastAfterSeconds: 120})))
}

func TestTaintsThatKeepPodsAway(t *testing.T) {
	result := busy().answer(t, declaring("gpu=yes:NoSchedule"))
	NewWithT(t).Expect(result.Pace).To(BeNil())
	NewWithT(t).Expect(result.Taints).To(HaveLen(1))
	text := strings.Join(result.Taints[0].Lines(), "\n")
	NewWithT(t).Expect(text).To(Equal(`Taint gpu=yes:NoSchedule is new on 3 Nodes of Cluster default/c: m-0, m-1 and m-2
  keeps 3 Pods from coming back to their Nodes after a restart: default/web, default/picky and default/agent (DaemonSet)`))
}

func TestATaintThatIsThereAlreadyDoesNothing(t *testing.T) {
	w := busy()
	w.node("m-0").Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoExecute}}
	w.node("m-1").Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "no", Effect: corev1.TaintEffectNoExecute}}
	result := w.answer(t, declaring("gpu=yes:NoExecute"))
	NewWithT(t).Expect(result.Taints).To(HaveLen(1))
	NewWithT(t).Expect(result.Taints[0].Nodes).To(Equal([]string{"m-1", "m-2"}))
	NewWithT(t).Expect(result.Pace.LastAfterSeconds).To(Equal(int64(60)))
}

func TestTheRateOfTheServer(t *testing.T) {
	w := busy()
	for flag, want := range map[string]string{
		"--no-execute-rate=0.5": "3 Nodes would get taints that evict Pods one after the other: the last after 4m (--no-execute-rate=0.5).",
		"--no-execute-rate=0":   "3 Nodes would get taints that evict Pods all at once, because --no-execute-rate is 0.",
	} {
		w.flags.ServerFlags = []string{flag}
		NewWithT(t).Expect(w.answer(t, declaring("gpu=yes:NoExecute")).Lines()).To(ContainElement(want))
	}
}

// Nobody declares what goes.
func TestWhatIsRemoved(t *testing.T) {
	w := small()
	w.node("m-0").Labels["node.cluster.x-k8s.io/old"] = "x"
	w.node("m-0").Annotations["cluster.x-k8s.io/labels-from-machine"] = "node.cluster.x-k8s.io/old"
	NewWithT(t).Expect(lines(w.answer(t))).To(Equal([]string{"Node m-0: - metadata.labels node.cluster.x-k8s.io/old <- "}))
}
