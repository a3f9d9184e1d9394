// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Without a key, nothing is listed that no one would miss: what tells about the object that carries it, and labels of controllers.
func TestAbsencesOfAllKeys(t *testing.T) {
	Expect := NewWithT(t).Expect
	w := newTopology()
	w.throughout("node.cluster.x-k8s.io/a", "")
	w.throughout("team", "node")
	w.md.Annotations = map[string]string{"cluster.x-k8s.io/own": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
	w.ms.Spec.Template.Labels[clusterv1.MachineDeploymentUniqueLabel], w.m.Labels[clusterv1.MachineDeploymentUniqueLabel] = "x", "x"
	w.m.Annotations = map[string]string{"controlplane.cluster.x-k8s.io/remediation-for": "x", "taints.heirloom.dev/always": "gpu:NoSchedule"}
	w.m.Spec.Taints, w.node.Spec.Taints = taintsIn(t, "taint gpu:NoSchedule"), []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	w.md.Labels["node.cluster.x-k8s.io/a"], w.md.Labels["team"] = "1", "1"
	w.ms.Labels["node.cluster.x-k8s.io/a"], w.ms.Labels["team"] = "1", "1"
	for _, object := range []string{"md", "ms", "m"} {
		Expect(w.missing(t, object, "")).To(BeEmpty(), object)
	}
	found := w.missing(t, "node", "")
	Expect(found).To(HaveLen(1), fmt.Sprint(found))
	Expect(found[0]).To(And(HaveField("Kind", Label), HaveField("Key", "team"), HaveField("Value", "1"), HaveField("Reason", "OutsideSyncedDomains"),
		HaveField("From", "Cluster default/c spec.topology.workers.machineDeployments[md].metadata.labels")))

	w.m.Annotations, w.m.Spec.Taints = nil, nil
	w.node.Spec.Taints = nil
	w.mp.Spec.Template.Labels = map[string]string{"b": "1"}
	Expect(w.missing(t, "mp", "")).To(BeEmpty(), "what the object declares itself is there")
}

func taintsIn(t *testing.T, s string) []clusterv1.MachineTaint {
	t.Helper()
	_, _, taints := read(t, s)
	return taints
}
