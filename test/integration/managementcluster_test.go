// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// Nodes of the management cluster inherit from the Machines of the Cluster that is named, each written once, also if the Cluster's
// kubeconfig leads there and it is reached like a workload cluster. A tenant's Machines, with or without a Cluster, and with a kubeconfig of
// that API server, decide nothing.
func TestTheManagementClusterIsNamed(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WithoutWebhooks: true, Args: []string{"--management-cluster=own/own"}})
	own := s.settleIn("own", "own", declared())
	tenant := s.settleIn("tenant", "tenant", declared())
	nowhere := stage.Machine(tenant.ms, "nowhere")
	nowhere.OwnerReferences, nowhere.Spec.ClusterName = nil, "nowhere"
	nowhere.Spec.Taints = stage.Taints(clusterv1.MachineTaintPropagationAlways, "evil:NoExecute")
	s.create(nowhere)
	s.leadsHome(own.cluster, "own-admin", "system:masters")
	s.leadsHome(tenant.cluster, "tenant")
	s.provisioned(own.cluster)
	s.expectSample(`capi_cluster_cache_connection_up{cluster_name="own",cluster_namespace="own"}`, 1)
	written := func() float64 { return s.sum(`heirloom_resync_writes_total{kind="Node",result="applied"}`) }
	before := written()
	for _, name := range []string{own.m.Name, tenant.m.Name, nowhere.Name} {
		s.create(stage.Node(name))
	}
	node := stage.Node(own.m.Name)
	s.eventually(node, func(g Gomega) { g.Expect(node.Labels).To(HaveKey("node-role.kubernetes.io/worker")) })
	s.looksAgain(node, func() { s.touch(node) })
	s.Expect(written()-before).To(BeEquivalentTo(1), "of all Nodes, one is written, and once")
	s.Expect(s.sum(`heirloom_resync_writes_total{kind="Node",result="conflict"}`)).To(BeZero())
	for _, name := range []string{tenant.m.Name, nowhere.Name} {
		other := stage.Node(name)
		s.looksAgain(other, func() { s.touch(other) })
		s.get(other)
		s.Expect(other.Annotations).NotTo(HaveKey(clusterv1.TaintsFromMachineAnnotation))
	}
}

// provisioned says that a Cluster has an API server.
func (s *scene) provisioned(cluster *clusterv1.Cluster) {
	s.t.Helper()
	s.get(cluster)
	before := cluster.DeepCopy()
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	s.Expect(s.Client.Status().Patch(s.ctx, cluster, client.MergeFrom(before))).To(Succeed())
}

// touch makes a change that does not matter. Of a Node, caches keep only what might be inherited.
func (s *scene) touch(object client.Object) {
	s.t.Helper()
	key := touched
	if _, ok := object.(*corev1.Node); ok {
		key = "node.cluster.x-k8s.io/touched"
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"%d"}}}`, key, time.Now().UnixNano()))
	s.Expect(s.Client.Patch(s.ctx, object, patch)).To(Succeed())
}

// looksAgain waits until the loop has looked at an object of that kind, on a stage where nothing else of that kind changes. A look
// that was under way may have seen what was before, so the second one after that counts; each is brought about by a change.
func (s *scene) looksAgain(object client.Object, change func()) {
	s.t.Helper()
	gvk, err := s.Client.GroupVersionKindFor(object)
	s.Expect(err).NotTo(HaveOccurred())
	looks := func() float64 {
		return s.sum(fmt.Sprintf(`controller_runtime_reconcile_total{controller=%q,`, strings.ToLower(gvk.Kind)))
	}
	before := looks()
	s.Eventually(func(g Gomega) {
		change()
		g.Expect(looks()).To(BeNumerically(">=", before+2))
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}
