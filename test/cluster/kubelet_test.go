// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/cluster"
)

// docs/kubectl.md says what the removal of a label does to running Pods: nothing, until their kubelet restarts. (Without a restart, nothing
// happened for 100 seconds either.) The kubelet rejects the Pods and stops their containers; a Pod whose container then ends with exit code 0
// has succeeded, any other has failed.
func TestPodsOfANodeThatLostItsLabel(t *testing.T) {
	if missing := cluster.Missing(); missing != "" {
		t.Skip(missing)
	}
	const label = "example.com/pool"
	g, ctx := NewWithT(t), t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: cluster.NodeName}}
	patch := func(value string) {
		g.Expect(shared.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+label+`":`+value+`}}}`)))).To(Succeed())
	}
	g.Eventually(func() error { return shared.Get(ctx, client.ObjectKeyFromObject(node), node) }).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "default"}}
	g.Eventually(func() error { return shared.Get(ctx, client.ObjectKeyFromObject(account), account) }).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	patch(`"gpu"`)
	exists := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: label, Operator: corev1.NodeSelectorOpExists}}}}
	specs := map[string]corev1.PodSpec{
		"selects": {NodeSelector: map[string]string{label: "gpu"}},
		"requires": {Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: exists},
		}}},
		"prefers": {Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: exists[0]}},
		}}},
	}
	pods := map[string]*corev1.Pod{}
	for name, spec := range specs {
		spec.TerminationGracePeriodSeconds, spec.AutomountServiceAccountToken = new(int64(0)), new(false)
		spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		spec.Containers = []corev1.Container{{Name: "run", Image: cluster.PauseImage, ImagePullPolicy: corev1.PullNever}}
		pods[name] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "label-" + name}, Spec: spec}
		g.Expect(shared.Create(ctx, pods[name])).To(Succeed())
	}
	is := func(g Gomega, name string, phases ...corev1.PodPhase) {
		g.Expect(shared.Get(ctx, client.ObjectKeyFromObject(pods[name]), pods[name])).To(Succeed())
		g.Expect(phases).To(ContainElement(pods[name].Status.Phase), name)
	}
	all := func(g Gomega) {
		for name := range pods {
			is(g, name, corev1.PodRunning)
		}
	}
	g.Eventually(all).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	patch("null")
	g.Consistently(all).WithTimeout(3 * time.Second).WithPolling(polling).Should(Succeed())

	g.Expect(shared.RestartKubelet(ctx)).To(Succeed())
	g.Eventually(func(g Gomega) {
		for _, name := range []string{"selects", "requires"} {
			is(g, name, corev1.PodFailed, corev1.PodSucceeded)
		}
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	is(g, "prefers", corev1.PodRunning)
	for _, pod := range pods {
		g.Expect(shared.Delete(ctx, pod)).To(Succeed())
	}
}
