// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// build creates the managed Cluster.
func (w *world) build(typed bool) {
	w.t.Helper()
	w.prepareManaged(typed)
	cluster := managedCluster(typed)
	w.create(cluster)
	w.managed = cluster
	w.wakePools()
}

// wakePools has the KubeadmConfigs of MachinePools looked at until they have bootstrap data. Otherwise Cluster API looks at them only
// every half minute, as long as there is no control plane.
func (w *world) wakePools() {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		pools := &clusterv1.MachinePoolList{}
		g.Expect(w.Client.List(w.ctx, pools)).To(Succeed())
		g.Expect(pools.Items).To(HaveLen(len(w.managed.Spec.Topology.Workers.MachinePools)))
		asleep := 0
		for _, pool := range pools.Items {
			bootstrap := pool.Spec.Template.Spec.Bootstrap
			if bootstrap.DataSecretName == nil {
				asleep++
			}
			config := &unstructured.Unstructured{}
			config.SetAPIVersion(bootstrapVersion)
			config.SetKind("KubeadmConfig")
			g.Expect(w.Client.Get(w.ctx, client.ObjectKey{Namespace: pool.Namespace, Name: bootstrap.ConfigRef.Name}, config)).To(Succeed())
			value := `""`
			if _, was := config.GetAnnotations()["woken"]; was || bootstrap.DataSecretName != nil {
				value = "null"
			}
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"woken":`+value+`}}}`))
			g.Expect(w.Client.Patch(w.ctx, config, patch)).To(Succeed())
		}
		g.Expect(asleep).To(BeZero())
	}).WithPolling(time.Second).Should(Succeed())
}

// withoutMachineDeployment takes the MachineDeployment out of the topology.
func (w *world) withoutMachineDeployment() {
	w.changeCluster(func(t *clusterv1.Topology) { t.Workers.MachineDeployments = nil })
}

// demolish deletes the managed Cluster with all that it has.
func (w *world) demolish() {
	w.t.Helper()
	w.Expect(w.Client.Delete(w.ctx, w.managed)).To(Succeed())
	w.expectGone(w.managed)
	w.managed = nil
}

// redeclare changes, adds and removes labels, annotations, taints and in-place fields in the class and in the Cluster.
func (w *world) redeclare(typed bool) {
	w.t.Helper()
	w.changeClass(func(class *clusterv1.ClusterClassSpec) {
		workers := &class.Workers.MachineDeployments[0]
		for _, metadata := range []clusterv1.ObjectMeta{
			class.ControlPlane.Metadata, workers.Metadata, class.Workers.MachinePools[0].Metadata, class.Workers.MachinePools[1].Metadata,
		} {
			delete(metadata.Labels, "goes")
			delete(metadata.Labels, "node.cluster.x-k8s.io/goes")
			metadata.Labels["came.node.cluster.x-k8s.io/later"] = "yes"
			metadata.Annotations["note"] = "changed"
		}
		class.ControlPlane.Deletion.NodeDeletionTimeoutSeconds = ptr.To(int32(31))
		workers.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(31))
		workers.MinReadySeconds = ptr.To(int32(2))
		class.Workers.MachinePools[0].Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(31))
	})
	w.changeCluster(func(topology *clusterv1.Topology) {
		workers := &topology.Workers.MachineDeployments[0]
		for _, metadata := range []clusterv1.ObjectMeta{
			workers.Metadata, topology.Workers.MachinePools[0].Metadata, topology.Workers.MachinePools[1].Metadata,
		} {
			metadata.Labels["node.cluster.x-k8s.io/pool"] = "changed"
		}
		for _, metadata := range []clusterv1.ObjectMeta{
			topology.ControlPlane.Metadata, workers.Metadata, topology.Workers.MachinePools[0].Metadata, topology.Workers.MachinePools[1].Metadata,
		} {
			delete(metadata.Labels, "goes-too")
			metadata.Labels["team"] = "changed"
			metadata.Annotations[taint.AlwaysAnnotation] = "annotated-changed=yes:PreferNoSchedule"
		}
		topology.ControlPlane.Deletion.NodeDrainTimeoutSeconds = nil
		workers.Deletion.NodeVolumeDetachTimeoutSeconds = ptr.To(int32(40))
		if typed {
			topology.ControlPlane.Taints = nil // the class declares some
			workers.Taints = stage.Taints(clusterv1.MachineTaintPropagationAlways, "changed=workers:NoSchedule")
		}
	})
}

// rollOut gives the class other templates.
func (w *world) rollOut() {
	w.t.Helper()
	w.changeClass(func(class *clusterv1.ClusterClassSpec) {
		class.ControlPlane.MachineInfrastructure.TemplateRef.Name = "class-big"
		class.Workers.MachineDeployments[0].Infrastructure.TemplateRef.Name = "class-big"
	})
}

// dropShim does what Kubernetes' garbage collector has done long ago in a real cluster: it drops references to the Secret that
// owns the parts of a Cluster until there is a Cluster. With them, clusterctl takes nobody for their owner.
func (w *world) dropShim() {
	w.t.Helper()
	for _, kind := range chain() {
		for _, object := range w.list(w.Client, kind) {
			before := object.DeepCopy()
			object.SetOwnerReferences(slices.DeleteFunc(object.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.Kind == "Secret" }))
			w.Expect(w.Client.Patch(w.ctx, &object, client.MergeFrom(before))).To(Succeed())
		}
	}
}

// scale scales the control plane and everything else.
func (w *world) scale(leaders, workers int32) {
	w.t.Helper()
	w.changeCluster(func(topology *clusterv1.Topology) {
		topology.ControlPlane.Replicas = &leaders
		topology.Workers.MachineDeployments[0].Replicas = &workers
		for i := range topology.Workers.MachinePools {
			topology.Workers.MachinePools[i].Replicas = &workers
		}
	})
}

// replace has a Machine of the MachineDeployment remediated, and deletes one of the control plane: with an external etcd, its
// manager puts off every remediation for ever, as it finds no etcd members to count.
func (w *world) replace() {
	w.t.Helper()
	sick := w.machineWith(clusterv1.MachineDeploymentNameLabel)
	before := sick.DeepCopy()
	annotations := sick.GetAnnotations()
	annotations[clusterv1.RemediateMachineAnnotation] = ""
	sick.SetAnnotations(annotations)
	w.Expect(w.Client.Patch(w.ctx, sick, client.MergeFrom(before))).To(Succeed())
	leader := w.machineWith(clusterv1.MachineControlPlaneLabel)
	w.Expect(w.Client.Delete(w.ctx, leader)).To(Succeed())
	w.expectGone(sick)
	w.expectGone(leader)
}

// machineWith returns a Machine of the managed Cluster with this label.
func (w *world) machineWith(label string) *unstructured.Unstructured {
	w.t.Helper()
	machines := slices.DeleteFunc(w.machines(managed), func(m unstructured.Unstructured) bool {
		_, has := m.GetLabels()[label]
		return !has
	})
	w.Expect(machines).NotTo(BeEmpty(), label)
	return &machines[0]
}

func (w *world) expectGone(object client.Object) {
	w.t.Helper()
	w.Eventually(func() error { return w.Client.Get(w.ctx, client.ObjectKeyFromObject(object), object) }).
		Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
}

// expectPromised expects what Cluster API does not bring, or not everywhere: on every Node of the managed Cluster a taint that is declared by
// annotation, an annotation, and one of these labels, each of which some Node has; and the time for draining that a MachinePool
// declares for its Machines.
func (w *world) expectPromised(tainted string, draining int64, pools ...string) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		seen := sets.New[string]()
		for _, node := range w.managedNodes() {
			g.Expect(text(node.Object["spec"])).To(ContainSubstring(`"key":"`+tainted+`"`), node.GetName())
			g.Expect(text(node.Object["spec"])).NotTo(ContainSubstring(clusterv1.NodeUninitializedTaint.Key), node.GetName())
			g.Expect(node.GetAnnotations()).To(HaveKeyWithValue("node.cluster.x-k8s.io/note", "cluster"), node.GetName())
			seen.Insert(node.GetLabels()["node.cluster.x-k8s.io/pool"])
		}
		g.Expect(seen.UnsortedList()).To(ConsistOf(pools))
		pooled := slices.DeleteFunc(w.machines(managed), func(m unstructured.Unstructured) bool { return !isPooled(m) })
		g.Expect(pooled).To(HaveLen(1))
		seconds, _, _ := unstructured.NestedInt64(pooled[0].Object, "spec", "deletion", "nodeDrainTimeoutSeconds")
		g.Expect(seconds).To(Equal(draining))
	}).Should(Succeed())
}
