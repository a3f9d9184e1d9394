// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// Every stored version of a Node has the taints that its Machine declares, from the first version on, whoever removes them; and the
// API server refuses no request of the kubelet.
func TestNoNodeVersionLacksItsTaints(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	name := s.own("gpu")
	s.settle(name, declared())
	recorder, err := controlplane.RecordVersions(s.ctx, s.AdminConfig(), corev1.SchemeGroupVersion.WithResource("nodes"))
	s.Expect(err).NotTo(HaveOccurred())

	kubelet := s.startKubelet(controlplane.KubeletOptions{Name: name})
	_, err = kubelet.WaitRegistered(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.eventually(node, func(g Gomega) {
		g.Expect(node.Labels).To(HaveKey("node-role.kubernetes.io/worker"), "the loop adds restricted labels")
		g.Expect(taint.Find(node.Spec.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint))).To(Equal(-1))
		g.Expect(node.Annotations).NotTo(HaveKey(inherit.UninitializedAnnotation))
		g.Expect(ready(node)).To(BeTrue())
	})

	for _, key := range []string{"gpu", "annotated"} {
		s.Expect(s.byKubectl("taint", "node", name, key+":NoSchedule-")).To(And(ContainSubstring("was kept"), ContainSubstring("Machine "+stage.Home+"/"+name+";"), ContainSubstring("edit MachineDeployment "+stage.Home+"/"+name+" ")))
	}
	s.byKubectl("taint", "node", name, "warming:NoSchedule-")
	s.byKubectl("label", "node", name, "mine=yes")
	s.get(node)
	s.Expect(taint.Find(node.Spec.Taints, taint.ID{Key: "warming", Effect: corev1.TaintEffectNoSchedule})).To(Equal(-1), "Initialize stays away")

	s.Expect(kubelet.Stop()).To(Succeed())
	s.Eventually(func() bool { return seen(recorder, node.ResourceVersion) }).WithTimeout(patience).Should(BeTrue())
	s.Expect(recorder.Stop()).To(Succeed())
	expectTaintsInEveryVersion(s, recorder.Versions("", name))
	s.Expect(refusedKubeletRequests(t, s.audit, name)).To(BeEmpty())
}

func ready(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func seen(recorder *controlplane.Recorder, resourceVersion string) bool {
	for _, version := range recorder.All() {
		if version.Object.GetResourceVersion() == resourceVersion {
			return true
		}
	}
	return false
}

func expectTaintsInEveryVersion(s *scene, versions []controlplane.Version) {
	s.t.Helper()
	s.Expect(len(versions)).To(BeNumerically(">", 2))
	for i, version := range versions {
		var node corev1.Node
		s.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(version.Object.Object, &node)).To(Succeed())
		taints := taint.FormatList(node.Spec.Taints)
		s.Expect(taints).To(And(ContainSubstring("gpu=true:NoSchedule"), ContainSubstring("annotated=yes:NoSchedule")), "version %d", i)
		if i == 0 {
			s.Expect(taints).To(And(ContainSubstring("warming=up:NoSchedule"), ContainSubstring("booting=yes:PreferNoSchedule")))
		}
	}
}

// refusedKubeletRequests returns the kubelet's writes of its Node that the API server answered with an error other than a conflict.
// An empty name matches every Node. It leaves out reads: a hollow kubelet's GET before its registration gets a 404.
func refusedKubeletRequests(t *testing.T, audit tail, node string) []string {
	t.Helper()
	events, err := audit.events()
	if err != nil {
		t.Fatal(err)
	}
	var refused []string
	requests := 0
	for _, event := range events {
		if !isKubeletsWrite(event, node) {
			continue
		}
		requests++
		if code := event.ResponseStatus.Code; code >= 300 && code != 409 {
			refused = append(refused, event.Verb+" "+event.RequestURI+": "+event.ResponseStatus.Message)
		}
	}
	if requests == 0 {
		t.Fatal("the audit log has no write of a kubelet")
	}
	return refused
}

// isKubeletsWrite reports whether the event is a write of a Node by its kubelet, or by any kubelet if the name is empty.
func isKubeletsWrite(event auditv1.Event, node string) bool {
	kubelet, ok := strings.CutPrefix(event.User.Username, "system:node:")
	return ok && (node == "" || node == kubelet) && event.ObjectRef != nil && event.ObjectRef.Resource == "nodes" &&
		!slices.Contains([]string{"get", "list", "watch"}, event.Verb) && event.ResponseStatus != nil
}
