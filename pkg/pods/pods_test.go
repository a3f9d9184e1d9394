// SPDX-License-Identifier: Apache-2.0

package pods_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/heirloom-dev/heirloom/pkg/pods"
)

// Of several matching tolerations, the first counts, as in the taint eviction controller.
func TestToleration(t *testing.T) {
	Expect := NewWithT(t).Expect
	seconds := int64(5)
	drain := corev1.Taint{Key: "drain", Value: "a", Effect: corev1.TaintEffectNoExecute}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{
		{Key: "drain", Value: "b"}, {Key: "drain", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	}}}
	Expect(pods.Toleration(pod, drain)).To(BeNil())
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: "drain", Value: "a", TolerationSeconds: &seconds}, corev1.Toleration{Operator: corev1.TolerationOpExists})
	Expect(pods.Toleration(pod, drain)).To(HaveField("TolerationSeconds", HaveValue(BeEquivalentTo(5))))
}
