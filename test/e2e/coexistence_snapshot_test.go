// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	machineKind = clusterv1.GroupVersion.WithKind("Machine")
	nodeKind    = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
)

// chain returns the kinds that are compared.
func chain() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for group, names := range map[string][]string{
		"cluster.x-k8s.io":              {"ClusterClass", "Cluster", "MachineDeployment", "MachineSet", "MachinePool", "Machine", "MachineHealthCheck"},
		"controlplane.cluster.x-k8s.io": {"KubeadmControlPlane", "KubeadmControlPlaneTemplate"},
		"bootstrap.cluster.x-k8s.io":    {"KubeadmConfig", "KubeadmConfigTemplate"},
		"infrastructure.cluster.x-k8s.io": {
			"FakeCluster", "FakeClusterTemplate", "FakeMachine", "FakeMachineTemplate", "FakeMachinePool", "FakeMachinePoolTemplate",
		},
	} {
		for _, name := range names {
			kinds = append(kinds, schema.GroupVersionKind{Group: group, Version: "v1beta2", Kind: name})
		}
	}
	return kinds
}

func (w *world) list(c client.Client, gvk schema.GroupVersionKind) []unstructured.Unstructured {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	w.Expect(c.List(w.ctx, list)).To(Succeed())
	return list.Items
}

// machines are the Machines of a Cluster.
func (w *world) machines(cluster string) []unstructured.Unstructured {
	return slices.DeleteFunc(w.list(w.Client, machineKind), func(m unstructured.Unstructured) bool {
		return m.GetLabels()[clusterv1.ClusterNameLabel] != cluster
	})
}

// versions are the resource versions of the whole chain.
func (w *world) versions() map[string]string {
	all := map[string]string{}
	for _, gvk := range chain() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		w.Expect(w.Client.List(w.ctx, list)).To(Succeed())
		for _, object := range list.Items {
			all[gvk.Kind+" "+object.GetName()] = object.GetResourceVersion()
		}
	}
	return all
}

// deployed expects that the MachineDeployment is what was asked for.
func (w *world) deployed(g Gomega) {
	g.Expect(w.Client.Get(w.ctx, client.ObjectKeyFromObject(w.md), w.md)).To(Succeed())
	want := *w.md.Spec.Replicas
	g.Expect(w.md.Status.ObservedGeneration).To(Equal(w.md.Generation))
	for _, count := range []*int32{w.md.Status.Replicas, w.md.Status.ReadyReplicas, w.md.Status.UpToDateReplicas} {
		g.Expect(count).To(HaveValue(Equal(want)), "%v", w.md.Status.Conditions)
	}
	g.Expect(w.machines(plain)).To(HaveLen(int(want + w.lonely)))
}

// snapshot returns every object of the chain and every Node, without what differs from run to run.
func (w *world) snapshot(chain []unstructured.Unstructured) []string {
	all := w.normalNodes()
	for _, object := range chain {
		all = append(all, w.normal(object))
	}
	slices.Sort(all)
	return all
}

// normalNodes returns every Node, likewise. Their versions move with every heartbeat.
func (w *world) normalNodes() []string {
	var all []string
	for _, node := range w.list(w.workload.Client, nodeKind) {
		all = append(all, w.normal(node))
	}
	slices.Sort(all)
	return all
}
