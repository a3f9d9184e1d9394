// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// gated returns a Machine with two start-up gates for its Node: a ready Pod of DaemonSet cni, and condition Net=True.
func gated() *clusterv1.Machine {
	m := nodeMachine("m")
	m.Annotations = map[string]string{taint.UntilAnnotation: "cni:NoSchedule until daemonset kube-system/cni, net:NoSchedule until condition Net=True"}
	return m
}

// newNode returns Node m, which has just registered.
func newNode() *corev1.Node {
	n := node("m")
	n.CreationTimestamp = metav1.Now()
	return n
}

// readyPod returns a ready Pod of DaemonSet kube-system/cni, on Node m.
func readyPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "pod", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "cni", UID: "u", Controller: new(true)},
		}},
		Spec:   corev1.PodSpec{NodeName: "m"},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

// setsCondition sets condition Net=True of a Node.
func (l *loop) setsCondition(n *corev1.Node) {
	l.t.Helper()
	l.stored(n)
	n.Status.Conditions = []corev1.NodeCondition{{Type: "Net", Status: "True"}}
	l.Expect(l.server.Status().Update(l.t.Context(), n)).To(Succeed())
	l.writtenAs(n)
}

// A start-up gate opens once, in a write of the loop, with an Event. While a gate waits for a Pod, the loop looks again every ten seconds.
func TestAStartupGateOpens(t *testing.T) {
	m, n := gated(), newNode()
	l := newLoop(t, theCluster(), machineSet(), m, n)
	l.after("m")
	l.writes.take()
	l.looks("m", "cni:NoSchedule,gpu:NoSchedule,net:NoSchedule", 10*time.Second)
	l.wrote()
	l.told()

	l.setsCondition(n)
	l.looks("m", "cni:NoSchedule,gpu:NoSchedule", 10*time.Second)
	l.told("Normal StartupGateOpened Machine/m: Start-up gates of Node m are open: removed net:NoSchedule")
	l.counted(`inherited_keys_total{action="removed",kind="Node",type="taint",writer="resync"} 1`)

	l.Expect(l.server.Create(t.Context(), readyPod())).To(Succeed())
	l.Expect(l.seeNode("m")).To(Succeed())
	l.Expect(l.taintsOf("m")).To(Equal("gpu:NoSchedule"))
	l.told("Normal StartupGateOpened Machine/m: Start-up gates of Node m are open: removed cni:NoSchedule")

	l.change(n, func() { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "net", Effect: "NoSchedule"}) })
	l.writes.take()
	l.Expect(l.seeNode("m")).To(Succeed())
	l.wrote()
	l.Expect(l.taintsOf("m")).To(Equal("gpu:NoSchedule,net:NoSchedule"))
}

// The gates of many Nodes that wait for the same DaemonSet open together, although all look for its Pods at the same time.
func TestGatesOfManyNodesOpenTogether(t *testing.T) {
	inUse(t, func(t *testing.T) {
		objects, names := []client.Object{theCluster(), machineSet()}, []string{}
		for i := range 20 {
			name := fmt.Sprint("n", i)
			m, n, pod := gated(), newNode(), readyPod()
			m.Name, n.Name, pod.Name, pod.Spec.NodeName = name, name, name, name
			m.Spec.ProviderID, n.Spec.ProviderID = "id-"+name, "id-"+name
			m.Annotations = map[string]string{taint.UntilAnnotation: "cni:NoSchedule until daemonset kube-system/cni"}
			objects, names = append(objects, m, n, pod), append(names, name)
		}
		l := newLoop(t, objects...)
		l.Live = interceptor.NewClient(l.uncached(l.server), interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				<-time.After(time.Second)
				return c.List(ctx, list, options...)
			},
		})
		for _, name := range names {
			l.after(name)
		}
		start, running := time.Now(), sync.WaitGroup{}
		for _, name := range names {
			running.Go(func() {
				for again := time.Nanosecond; again > 0; <-time.After(again) {
					var err error
					again, err = l.lookAt("c", name)
					l.Expect(err).NotTo(HaveOccurred())
				}
			})
		}
		running.Wait()
		l.Expect(time.Since(start)).To(BeNumerically("<", 10*time.Second))
		for _, name := range names {
			l.Expect(l.taintsOf(name)).To(Equal("gpu:NoSchedule"))
		}
	})
}

// Only a ready Pod of the named DaemonSet on the same Node opens a gate.
func TestOtherPodsOpenNoGate(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"it is on another Node":          func(pod *corev1.Pod) { pod.Spec.NodeName = "other" },
		"it is in another namespace":     func(pod *corev1.Pod) { pod.Namespace = "default" },
		"it is of another DaemonSet":     func(pod *corev1.Pod) { pod.OwnerReferences[0].Name = "other" },
		"it is of no DaemonSet":          func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "ReplicaSet" },
		"the DaemonSet does not control": func(pod *corev1.Pod) { pod.OwnerReferences[0].Controller = nil },
		"it is not ready":                func(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse },
		"it is being deleted":            func(pod *corev1.Pod) { pod.DeletionTimestamp, pod.Finalizers = new(metav1.Now()), []string{"a/b"} },
	} {
		t.Run(name, func(t *testing.T) {
			pod := readyPod()
			change(pod)
			l := newLoop(t, theCluster(), machineSet(), gated(), newNode(), pod)
			for range 2 {
				taints, _ := l.after("m")
				l.Expect(taints).To(ContainSubstring("cni:NoSchedule"))
			}
		})
	}
}

// gatedBy returns a Machine with this start-up gate.
func gatedBy(gate string) *clusterv1.Machine {
	m := nodeMachine("m")
	m.Annotations = map[string]string{taint.UntilAnnotation: gate}
	return m
}

// A GPU Node opens when it can allocate GPUs and its CSI driver has registered. Other objects are looked at once the Node itself is ready.
func TestAGateWaitsForGPUsAndACSIDriver(t *testing.T) {
	const closed = "gpu:NoSchedule,new:NoSchedule"
	n := newNode()
	l := newLoop(t, theCluster(), machineSet(), gatedBy("new:NoSchedule until csinode ebs.csi.aws.com and allocatable nvidia.com/gpu"), n)
	l.after("m")
	l.looks("m", closed, 0)
	l.stored(n)
	n.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	l.Expect(l.server.Status().Update(t.Context(), n)).To(Succeed())
	l.writtenAs(n)
	l.looks("m", closed, 10*time.Second)

	csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "other", NodeID: "m"}}}}
	l.Expect(l.server.Create(t.Context(), csi)).To(Succeed())
	l.looks("m", closed, 10*time.Second)
	csi.Spec.Drivers = append(csi.Spec.Drivers, storagev1.CSINodeDriver{Name: "ebs.csi.aws.com", NodeID: "m"})
	l.Expect(l.server.Update(t.Context(), csi)).To(Succeed())
	l.told()
	l.looks("m", "gpu:NoSchedule", 0)
	l.told("Normal StartupGateOpened Machine/m: Start-up gates of Node m are open: removed new:NoSchedule")
}

// Without the right to read CSINodes, or without CSINodes, a gate stays closed, and an Event says so. The other gates open, and the Node
// inherits the rest.
func TestACSINodeThatCannotBeRead(t *testing.T) {
	for _, tc := range []struct {
		err  error
		told string
	}{
		{apierrors.NewForbidden(storagev1.Resource("csinodes"), "m", errors.New("no right")), `looking for csinode ebs.csi.aws.com: csinodes.storage.k8s.io "m" is forbidden`},
		{&meta.NoKindMatchError{GroupKind: storagev1.SchemeGroupVersion.WithKind("CSINode").GroupKind()}, "looking for csinode ebs.csi.aws.com: the API server serves no CSINodes"},
	} {
		t.Run(tc.told, func(t *testing.T) {
			m, n := gatedBy("csi:NoSchedule until csinode ebs.csi.aws.com, cni:NoSchedule until daemonset kube-system/cni"), newNode()
			l := newLoop(t, theCluster(), machineSet(), m, n, readyPod())
			l.Live = interceptor.NewClient(l.uncached(l.server), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if _, is := object.(*storagev1.CSINode); is {
						return tc.err
					}
					return c.Get(ctx, key, object, options...)
				},
			})
			l.looks("m", "cni:NoSchedule,csi:NoSchedule,gpu:NoSchedule", 10*time.Second)
			l.looks("m", "csi:NoSchedule,gpu:NoSchedule", 10*time.Second)
			l.told("Warning InheritanceFailed Machine/m: Failed to check the start-up gates of Node m: "+tc.told, "Normal StartupGateOpened Machine/m: ")
		})
	}
}

// A gate that is closed for longer than it says is reported once, on the object that declares it, and counts until it opens. It stays closed.
func TestAGateThatStaysClosedIsReportedOnce(t *testing.T) {
	inUse(t, func(t *testing.T) {
		const gates = "a:NoSchedule until condition Net=True within 30m, b:NoSchedule until condition Net=True"
		md, m, n := machineDeployment(), gatedBy(gates), newNode()
		md.Spec.Template.Annotations, md.Spec.Template.Spec.Taints = m.Annotations, nil
		l := newLoop(t, theCluster(), md, machineSet(), m, n)
		l.after("m")
		l.looks("m", "a:NoSchedule,b:NoSchedule,gpu:NoSchedule", 30*time.Minute)
		l.told()
		since := fmt.Sprintf(`startup_gates_closed_since_timestamp_seconds{cluster_name="c",cluster_namespace="ns"} %v`, float64(n.CreationTimestamp.Unix()))
		l.counted(`startup_gates_closed{cluster_name="c",cluster_namespace="ns"} 2`, since)
		l.notCounted("startup_gates_late")

		<-time.After(30 * time.Minute)
		for range 2 {
			l.looks("m", "a:NoSchedule,b:NoSchedule,gpu:NoSchedule", 0)
		}
		l.told("Warning StartupGateStuck MachineDeployment/md: Start-up gate a:NoSchedule until condition Net=True within 30m is still closed on Node m: " +
			"it waits for condition Net=True")
		l.counted(`startup_gates_late{cluster_name="c",cluster_namespace="ns"} 1`)

		l.setsCondition(n)
		l.looks("m", "gpu:NoSchedule", 0)
		l.notCounted("startup_gates_")
	})
}

// For a Node of a workload cluster, the loop reads the Pods of this cluster. If the read fails, the gate stays closed, an Event reports the
// failure, and the Node inherits the rest.
func TestGatesOfAWorkloadCluster(t *testing.T) {
	m := gated()
	l := newLoop(t, theCluster(), machineSet(), m)
	server := l.connect("c", newNode(), readyPod())
	look := func() (taints string) {
		again, err := l.lookAt("c", "m")
		l.Expect(err).NotTo(HaveOccurred())
		n := newNode()
		l.Expect(server.Get(t.Context(), client.ObjectKeyFromObject(n), n)).To(Succeed())
		taints = taint.FormatList(n.Spec.Taints)
		l.Expect(again).To(Equal(map[bool]time.Duration{true: 10 * time.Second}[taints == "cni:NoSchedule,gpu:NoSchedule,net:NoSchedule"]))
		return taints
	}
	l.workloads.brokenUncached = errors.New("no connection")
	look()
	look()
	l.told("Warning InheritanceFailed Machine/m: Failed to check the start-up gates of Node m: ")
	l.workloads.brokenUncached = nil
	l.Expect(look()).To(Equal("gpu:NoSchedule,net:NoSchedule"))
	l.told("Normal StartupGateOpened Machine/m: ")
}
