// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// scaling is a MachineDeployment without Machines, and a Pod that waits for a Node.
type scaling struct {
	name string
	// labels and annotations are declared in the template, told are annotations that an operator sets for cluster-autoscaler.
	labels, annotations, told map[string]string
	// selects is the Pod's node selector; the Pod tolerates the taint gpu or no taint.
	selects   map[string]string
	tolerates bool
	// ignored opts the MachineDeployment out of Heirloom.
	ignored bool
	want    int32
}

// The released cluster-autoscaler scales a group from zero for Pods that fit the future labels and taints of its Nodes, and for no other
// Pods.
func TestClusterAutoscaler(t *testing.T) {
	program := os.Getenv("HEIRLOOM_CLUSTER_AUTOSCALER")
	if program == "" {
		t.Skip("HEIRLOOM_CLUSTER_AUTOSCALER names no cluster-autoscaler, and it is no Go module that could be built here")
	}
	dir := worldDir(t)
	s, _ := newStage(t, dir, []string{`--additional-sync-machine-labels=^extra\.example\.com/`})
	Expect := NewWithT(t).Expect

	pool := func(name string) map[string]string { return map[string]string{"node.cluster.x-k8s.io/pool": name} }
	gpu := map[string]string{taint.AlwaysAnnotation: "gpu=true:NoSchedule"}
	told := map[string]string{inherit.CapacityLabelsAnnotation: "node.cluster.x-k8s.io/pool=half-told"}
	all := []scaling{
		{name: "label-and-taint", labels: pool("label-and-taint"), annotations: gpu, selects: pool("label-and-taint"), tolerates: true, want: 1},
		{name: "by-regex", labels: map[string]string{"extra.example.com/rack": "r1"}, selects: map[string]string{"extra.example.com/rack": "r1"}, want: 1},
		{name: "not-a-node-label", labels: map[string]string{"team": "ml"}, selects: map[string]string{"team": "ml"}},
		{name: "not-tolerated", labels: pool("not-tolerated"), annotations: gpu, selects: pool("not-tolerated")},
		// Without Heirloom, cluster-autoscaler knows neither the label nor the taint.
		{name: "untold", labels: pool("untold"), selects: pool("untold"), ignored: true},
		{name: "half-told", labels: pool("half-told"), annotations: gpu, told: told, selects: pool("half-told"), ignored: true, want: 1},
	}
	cluster := stage.Cluster(metav1.NamespaceDefault, "c")
	// cluster-autoscaler reads the InfraMachine template in every round, and slowly if it does not exist.
	infrastructure := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": "small"}}}
	infrastructure.SetGroupVersionKind(schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: "FakeMachine"})
	infrastructure.SetNamespace(metav1.NamespaceDefault)
	infrastructure.SetName("fake")
	Expect(s.Client.Create(t.Context(), cluster)).To(Succeed())
	Expect(s.Client.Create(t.Context(), infrastructure)).To(Succeed())
	for _, sc := range all {
		Expect(s.Client.Create(t.Context(), sc.machineDeployment(cluster))).To(Succeed())
		Expect(s.Client.Create(t.Context(), sc.pod())).To(Succeed())
	}
	runAutoscaler(t, s, program, dir)

	replicas := func() map[string]int32 {
		list, found := &clusterv1.MachineDeploymentList{}, map[string]int32{}
		Expect(s.Client.List(t.Context(), list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
		for _, md := range list.Items {
			found[md.Name] = ptr.Deref(md.Spec.Replicas, -1)
		}
		return found
	}
	want := map[string]int32{}
	for _, sc := range all {
		want[sc.name] = sc.want
	}
	NewWithT(t).Eventually(replicas).WithTimeout(patience).WithPolling(time.Second).Should(Equal(want))
	NewWithT(t).Consistently(replicas).WithTimeout(10*time.Second).WithPolling(time.Second).Should(Equal(want), "in later rounds")
}

func runAutoscaler(t *testing.T, s *stage.Stage, program, dir string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	kubeconfig, log := filepath.Join(dir, "autoscaler.kubeconfig"), filepath.Join(dir, "autoscaler.log")
	Expect(s.WriteKubeconfig(kubeconfig, "cluster-autoscaler", "system:masters")).To(Succeed())
	port, err := controlplane.FreePort()
	Expect(err).NotTo(HaveOccurred())
	address := fmt.Sprintf("127.0.0.1:%d", port)
	process, err := controlplane.StartProcess(t.Context(), program, []string{
		"--cloud-provider=clusterapi", "--kubeconfig=" + kubeconfig, "--cloud-config=" + kubeconfig, "--clusterapi-cloud-config-authoritative",
		"--address=" + address, "--leader-elect=false", "--scan-interval=1s", "--scale-down-enabled=false",
		// No scheduler runs that could mark Pods as unschedulable.
		"--bypassed-scheduler-names=" + corev1.DefaultSchedulerName,
		"--kube-client-qps=1000", "--kube-client-burst=1000", "--v=4",
	}, log)
	Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if text, err := os.ReadFile(log); err == nil && t.Failed() {
			t.Logf("log of cluster-autoscaler:\n%s", text)
		}
		Expect(process.Stop()).To(Succeed())
	})
	Expect(process.WaitReady(t.Context(), "http://"+address+"/health-check")).To(Succeed())
}

func (sc scaling) machineDeployment(cluster *clusterv1.Cluster) *clusterv1.MachineDeployment {
	annotations := map[string]string{
		clusterv1.AutoscalerMinSizeAnnotation: "0", clusterv1.AutoscalerMaxSizeAnnotation: "3",
		"capacity.cluster-autoscaler.kubernetes.io/cpu": "4", "capacity.cluster-autoscaler.kubernetes.io/memory": "8Gi",
	}
	maps.Copy(annotations, sc.told)
	md := stage.MachineDeployment(cluster, sc.name, stage.Declared{Labels: sc.labels, Annotations: sc.annotations, OwnAnnotations: annotations})
	md.Spec.Replicas = ptr.To(int32(0))
	if sc.ignored {
		md.Labels[inherit.IgnoreLabel] = ""
	}
	return md
}

func (sc scaling) pod() *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: sc.name},
		Spec: corev1.PodSpec{
			NodeSelector: sc.selects, Containers: []corev1.Container{{Name: "c", Image: "none"}},
		},
	}
	if sc.tolerates {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	}
	return pod
}
