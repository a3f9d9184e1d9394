// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/clusterapi"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// With Heirloom and Cluster API's own managers, every object of the chain ends as without Heirloom, apart from Heirloom's own promises,
// and Cluster API has no more work: through the whole life of a Cluster. Two fleets go through the same steps in one management cluster.
// Heirloom watches only the Namespace of one fleet, and leaves no trace in the other Namespace.
func TestCoexistence(t *testing.T) {
	w := newWorld(t, []string{
		"--namespace=beside",
		"--sync-period=15s", // Heirloom detects the gate as often as it resyncs objects
	}, "alone", "beside")
	p := &pair{world: w, alone: &fleet{world: w, namespace: "alone"}, beside: &fleet{world: w, namespace: "beside"}}
	p.step("create", (*fleet).build)
	p.beside.expectPromised("annotated-cluster", 30, "leader", "workers")
	p.step("change class and Cluster", (*fleet).redeclare)
	p.beside.expectPromised("annotated-changed", 31, "leader", "changed")
	p.step("patch metadata", (*fleet).patch)
	p.beside.expectPatched()
	p.step("patches go", func(f *fleet) { f.changeClass(func(class *clusterv1.ClusterClassSpec) { class.Patches = nil }) })
	p.switchOn()
	p.step("upgrade, scale out", (*fleet).upgrade, scaled(2))
	p.step("remediate a worker", (*fleet).remediate)
	p.goAndComeBack()
	p.switchOff()
	p.expectNoMoreWrites()
	p.step("the MachineDeployment leaves the topology", (*fleet).withoutMachineDeployment)
	p.step("the Cluster is deleted", (*fleet).demolish)
}

// switchOn switches the gate MachineTaintPropagation on and declares typed taints at once, before Heirloom can know the state of the
// gate. No Node loses an annotated taint, and Cluster API can still read the objects that Heirloom wrote.
func (p *pair) switchOn() {
	p.beside.expectTracked("", "annotated-changed=yes:PreferNoSchedule")
	kept := p.beside.record()
	p.Expect(p.managers.Switch(p.ctx, true)).To(Succeed())
	p.step("the gate is on, and taints are typed", func(f *fleet) { f.declareTyped("gpu=true:NoSchedule", "booting=yes:PreferNoSchedule") })
	kept("annotated-changed")
	p.beside.expectTyped("annotated-changed:PreferNoSchedule", "gpu:NoSchedule")
	p.step("typed taints change", func(f *fleet) { f.declareTyped("npu=true:NoSchedule", "") })
}

// switchOff switches the gate off. Cluster API then refuses every write of a Machine with typed taints, and Heirloom has made annotated
// taints typed meanwhile: no write stays blocked.
func (p *pair) switchOff() {
	p.step("typed taints are removed", func(f *fleet) { f.declareTyped("", "") })
	kept := p.beside.record()
	p.Expect(p.managers.Switch(p.ctx, false)).To(Succeed())
	p.step("the gate is off", func(f *fleet) { f.relabel("off") }, scaled(2))
	kept("annotated-changed")
	p.beside.expectTracked("", "annotated-changed=yes:PreferNoSchedule")
	for _, machine := range p.list(p.Client, machineKind, "beside") {
		p.Expect(machine.Object["spec"]).NotTo(HaveKey("taints"))
	}
}

// goAndComeBack stops Heirloom, adds and removes Machines and labels meanwhile, and starts Heirloom again.
func (p *pair) goAndComeBack() {
	p.Expect(p.StopHeirloom()).To(Succeed())
	p.step("Heirloom has gone", func(f *fleet) { f.relabel("gone") }, scaled(1))
	p.Expect(p.StartHeirloom(p.ctx)).To(Succeed())
	p.step("Heirloom comes back")
	p.beside.expectPromised("annotated-changed", 31, "leader", "changed")
}

// expectPromised expects the entries that Cluster API does not propagate, or not to every Node: on each Node an annotated taint and one
// of these labels, each of which is on some Node; and in the Machines of a MachinePool its timeout for draining.
func (f *fleet) expectPromised(tainted string, draining int64, pools ...string) {
	f.t.Helper()
	f.Eventually(func(g Gomega) {
		seen := map[string]bool{}
		for _, node := range f.allNodes() {
			g.Expect(text(node.Object["spec"])).To(ContainSubstring(`"key":"`+tainted+`"`), node.GetName())
			g.Expect(text(node.Object["spec"])).NotTo(ContainSubstring(clusterv1.NodeUninitializedTaint.Key), node.GetName())
			g.Expect(node.GetAnnotations()).To(HaveKeyWithValue("node.cluster.x-k8s.io/note", "cluster"), node.GetName())
			seen[node.GetLabels()["node.cluster.x-k8s.io/pool"]] = true
		}
		for _, pool := range pools {
			g.Expect(seen).To(HaveKey(pool))
		}
		g.Expect(seen).To(HaveLen(len(pools)))
		for _, machine := range f.machines(clusterv1.MachinePoolNameLabel) {
			g.Expect(text(machine.Object["spec"])).To(ContainSubstring(`"nodeDrainTimeoutSeconds":`+text(draining)), machine.GetName())
		}
	}).Should(Succeed())
}

// expectTracked expects entries in the tracking annotations of each Node: Cluster API's and Heirloom's.
func (f *fleet) expectTracked(byClusterAPI, byHeirloom string) {
	f.t.Helper()
	f.Eventually(func(g Gomega) {
		for _, node := range f.allNodes() {
			g.Expect(node.GetAnnotations()[clusterv1.TaintsFromMachineAnnotation]).To(Equal(byClusterAPI), node.GetName())
			g.Expect(node.GetAnnotations()[inherit.TaintsFromMachineAnnotation]).To(ContainSubstring(byHeirloom), node.GetName())
		}
	}).Should(Succeed())
}

// expectTyped expects that Cluster API tracks these taints on the Nodes of MachineDeployments, and that Heirloom tracks no taint there.
func (f *fleet) expectTyped(ids ...string) {
	f.t.Helper()
	f.Eventually(func(g Gomega) {
		for _, machine := range f.machines(clusterv1.MachineDeploymentNameLabel) {
			node := &corev1.Node{}
			g.Expect(f.nodes.Get(f.ctx, client.ObjectKey{Name: machine.GetName()}, node)).To(Succeed())
			for _, id := range ids {
				g.Expect(node.Annotations[clusterv1.TaintsFromMachineAnnotation]).To(ContainSubstring(id), node.Name)
			}
			g.Expect(node.Annotations).NotTo(HaveKey(inherit.TaintsFromMachineAnnotation), node.Name)
		}
	}).Should(Succeed())
}

// record records the Nodes from now on. The returned function expects that every version of the existing Nodes had the taint, and that no
// two writers kept changing them.
func (f *fleet) record() (kept func(key string)) {
	f.t.Helper()
	config, err := clusterapi.WorkloadConfig(f.ctx, f.Client, client.ObjectKeyFromObject(f.cluster))
	f.Expect(err).NotTo(HaveOccurred())
	recorder, err := controlplane.RecordVersions(f.ctx, config, corev1.SchemeGroupVersion.WithResource("nodes"))
	f.Expect(err).NotTo(HaveOccurred())
	before := f.allNodes()
	return func(key string) {
		f.t.Helper()
		f.Expect(recorder.Stop()).To(Succeed())
		for _, node := range before {
			changes, last := 0, ""
			for _, version := range recorder.All() {
				if version.Object.GetName() != node.GetName() || version.Type == watch.Deleted || version.Object.GetDeletionTimestamp() != nil {
					continue
				}
				f.Expect(text(version.Object.Object["spec"])).To(ContainSubstring(`"key":"`+key+`"`), node.GetName())
				if now := contentOf(*version.Object); now != last {
					changes, last = changes+1, now
				}
			}
			f.Expect(changes).To(BeNumerically("<", 10), node.GetName())
		}
	}
}

// declareTyped declares typed taints: an Always taint and an OnInitialization taint; "" for no taint. It leaves MachinePools alone.
func (f *fleet) declareTyped(always, once string) {
	f.t.Helper()
	f.changeClass(func(class *clusterv1.ClusterClassSpec) {
		class.ControlPlane.Taints = stage.Taints(clusterv1.MachineTaintPropagationAlways, always)
	})
	f.changeCluster(func(topology *clusterv1.Topology) {
		topology.Workers.MachineDeployments[0].Taints = append(stage.Taints(clusterv1.MachineTaintPropagationAlways, always),
			stage.Taints(clusterv1.MachineTaintPropagationOnInitialization, once)...)
	})
}

// redeclare changes, adds and removes labels, annotations, taints and in-place fields in the class and in the Cluster.
func (f *fleet) redeclare() {
	f.t.Helper()
	f.changeClass(func(class *clusterv1.ClusterClassSpec) {
		workers := &class.Workers
		for _, metadata := range []clusterv1.ObjectMeta{
			class.ControlPlane.Metadata, workers.MachineDeployments[0].Metadata, workers.MachinePools[0].Metadata, workers.MachinePools[1].Metadata,
		} {
			delete(metadata.Labels, "goes")
			delete(metadata.Labels, "node.cluster.x-k8s.io/goes")
			metadata.Labels["came.node.cluster.x-k8s.io/later"] = "yes"
			metadata.Annotations["note"] = "changed"
		}
		class.ControlPlane.Deletion.NodeDeletionTimeoutSeconds = ptr.To(int32(31))
		workers.MachineDeployments[0].Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(31))
		workers.MachineDeployments[0].MinReadySeconds = ptr.To(int32(2))
		workers.MachinePools[0].Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(31))
	})
	f.changeCluster(func(topology *clusterv1.Topology) {
		for i, metadata := range sections(topology) {
			delete(metadata.Labels, "goes-too")
			metadata.Labels["team"] = "changed"
			metadata.Annotations[taint.AlwaysAnnotation] = "annotated-changed=yes:PreferNoSchedule"
			if i > 0 {
				metadata.Labels["node.cluster.x-k8s.io/pool"] = "changed"
			}
		}
		topology.ControlPlane.Deletion.NodeDrainTimeoutSeconds = nil
		topology.Workers.MachineDeployments[0].Deletion.NodeVolumeDetachTimeoutSeconds = ptr.To(int32(40))
	})
}

// relabel changes a label of each section of the topology, and a label of the Nodes.
func (f *fleet) relabel(value string) {
	f.t.Helper()
	f.changeCluster(func(topology *clusterv1.Topology) {
		for _, metadata := range sections(topology) {
			metadata.Labels["team"], metadata.Labels["came.node.cluster.x-k8s.io/later"] = value, value
		}
	})
}
