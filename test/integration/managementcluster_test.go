// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// leadsHome gives a Cluster a kubeconfig of the management cluster itself, for that user.
func (s *scene) leadsHome(cluster *clusterv1.Cluster, user string, groups ...string) {
	s.t.Helper()
	path := filepath.Join(s.dir, cluster.Namespace+"-"+cluster.Name+".kubeconfig")
	s.Expect(s.WriteKubeconfig(path, user, groups...)).To(Succeed())
	s.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name + "-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name}},
		StringData: map[string]string{"value": s.read(path)}, Type: clusterv1.ClusterSecretType,
	})
}

// By default, Nodes of the management cluster inherit from the Machines of the Cluster whose kubeconfig leads an administrator
// there. A tenant's Machines, with or without a Cluster, and with a kubeconfig of that API server, decide nothing.
func TestTheManagementClusterIsFound(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{Args: []string{"--management-cluster=auto"}})
	own := s.settleIn("own", "own", declared())
	weak := s.settleIn("weak", "weak", declared())
	nowhere := stage.Machine(weak.ms, "nowhere")
	nowhere.OwnerReferences, nowhere.Spec.ClusterName = nil, "nowhere"
	nowhere.Spec.Taints = stage.Taints(clusterv1.MachineTaintPropagationAlways, "evil:NoExecute")
	s.create(nowhere)
	s.leadsHome(weak.cluster, "tenant")
	for _, name := range []string{own.m.Name, weak.m.Name, nowhere.Name} {
		s.create(stage.Node(name))
	}
	s.leadsHome(own.cluster, "own-admin", "system:masters")

	node := stage.Node(own.m.Name)
	s.Eventually(func(g Gomega) {
		g.Expect(s.Client.Get(s.ctx, types.NamespacedName{Name: node.Name}, node)).To(Succeed())
		g.Expect(node.Labels).To(HaveKey("node-role.kubernetes.io/worker"))
	}).WithTimeout(2*time.Minute).WithPolling(polling).Should(Succeed(), "it is found")
	s.expectEvent("ManagementClusterFound", "Cluster", own.cluster.Name, Not(BeEmpty()))
	for _, name := range []string{weak.m.Name, nowhere.Name} {
		other := stage.Node(name)
		s.looksAgain(other, func() { s.touch(other) })
		s.get(other)
		s.Expect(other.Annotations).NotTo(HaveKey(clusterv1.TaintsFromMachineAnnotation))
	}
}
