// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// patch adds patches to the ClusterClass: they replace, remove and add labels of the control plane, and replace all its annotations; and they
// change labels of the InfraCluster, and of the BootstrapConfig and the infrastructure of a MachinePool.
func (f *fleet) patch() {
	f.t.Helper()
	const labels, annotations = "/spec/template/metadata/labels", "/spec/template/metadata/annotations"
	f.changeClass(func(class *clusterv1.ClusterClassSpec) {
		pool := clusterv1.PatchSelectorMatch{MachinePoolClass: &clusterv1.PatchSelectorMatchMachinePoolClass{Names: []string{"pooled"}}}
		class.Patches = []clusterv1.ClusterClassPatch{{Name: "metadata", Definitions: []clusterv1.PatchDefinition{
			patchOf(class.ControlPlane.TemplateRef, clusterv1.PatchSelectorMatch{ControlPlane: ptr.To(true)},
				change("replace", labels+"/team", "patch"), change("remove", labels+"/node-role.kubernetes.io~1leader", nil),
				change("add", labels+"/added", "patch"), change("replace", annotations, map[string]string{"note": "patch"})),
			patchOf(class.Infrastructure.TemplateRef, clusterv1.PatchSelectorMatch{InfrastructureCluster: ptr.To(true)},
				change("replace", labels+"/team", "patch"), change("add", labels+"/added", "patch")),
			patchOf(class.Workers.MachinePools[0].Bootstrap.TemplateRef, pool, change("add", labels, map[string]string{"added": "patch"})),
			patchOf(class.Workers.MachinePools[0].Infrastructure.TemplateRef, pool, change("add", labels, map[string]string{"added": "patch"})),
		}}}
	})
}

func patchOf(of clusterv1.ClusterClassTemplateReference, match clusterv1.PatchSelectorMatch, changes ...clusterv1.JSONPatch) clusterv1.PatchDefinition {
	return clusterv1.PatchDefinition{
		Selector:    clusterv1.PatchSelector{APIVersion: of.APIVersion, Kind: of.Kind, MatchResources: match},
		JSONPatches: changes,
	}
}

func change(op, path string, value any) clusterv1.JSONPatch {
	patch := clusterv1.JSONPatch{Op: op, Path: path}
	if value != nil {
		raw, err := json.Marshal(value)
		if err != nil {
			panic(err) // it is a string or a map
		}
		patch.Value = &apiextensionsv1.JSON{Raw: raw}
	}
	return patch
}

// expectPatched expects the result of the patches on the control plane, whose Machines and Nodes inherit as before.
func (f *fleet) expectPatched() {
	f.t.Helper()
	kcp := schema.GroupVersionKind{Group: "controlplane.cluster.x-k8s.io", Version: "v1beta2", Kind: "KubeadmControlPlane"}
	f.Eventually(func(g Gomega) {
		for _, cp := range f.list(f.Client, kcp, f.namespace) {
			g.Expect(cp.GetLabels()).To(And(HaveKeyWithValue("team", "patch"), HaveKeyWithValue("added", "patch"), Not(HaveKey("node-role.kubernetes.io/leader"))))
			g.Expect(cp.GetAnnotations()).To(And(HaveKeyWithValue("note", "patch"), Not(HaveKey("node.cluster.x-k8s.io/note"))))
		}
		for _, machine := range f.machines(clusterv1.MachineControlPlaneLabel) {
			g.Expect(machine.GetLabels()).To(HaveKeyWithValue("team", "changed"))
		}
	}).Should(Succeed())
	f.expectPromised("annotated-changed", 31, "leader", "changed")
}
