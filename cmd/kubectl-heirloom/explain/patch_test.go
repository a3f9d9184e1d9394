// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// patched gives the Cluster a control plane with these labels, which Cluster API has set, and the ClusterClass patches of these paths, which
// are named after their keys. A path "extension" stands for a patch of an extension.
func (w *topologyOf) patched(labels map[string]string, paths ...string) {
	class := &w.class.Spec.ControlPlane
	class.TemplateRef.Kind, class.MachineInfrastructure.TemplateRef.Name = "AcmeControlPlaneTemplate", "machines"
	w.cluster.Spec.Topology.ControlPlane.Metadata.Labels = map[string]string{"team": "a"}
	w.cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: inherit.ControlPlaneGroup, Kind: "AcmeControlPlane", Name: "cp"}
	for _, path := range paths {
		patch := clusterv1.ClusterClassPatch{Name: path[strings.LastIndex(path, "/")+1:], Definitions: []clusterv1.PatchDefinition{{
			Selector:    clusterv1.PatchSelector{Kind: "AcmeControlPlaneTemplate", MatchResources: clusterv1.PatchSelectorMatch{ControlPlane: new(true)}},
			JSONPatches: []clusterv1.JSONPatch{{Op: "add", Path: path}},
		}}}
		if path == "extension" {
			patch.Definitions, patch.External = nil, &clusterv1.ExternalPatchDefinition{GeneratePatchesExtension: "e"}
		}
		w.class.Spec.Patches = append(w.class.Spec.Patches, patch)
	}
	cp, fields := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"machineTemplate": map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"team": "a"}},
	}}}}, []string{}
	cp.SetAPIVersion(inherit.ControlPlaneGroup + "/v1beta2")
	cp.SetKind("AcmeControlPlane")
	cp.SetNamespace("default")
	cp.SetName("cp")
	all := map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.ClusterTopologyOwnedLabel: ""}
	for key, value := range labels {
		all[key] = value
	}
	for key := range all {
		fields = append(fields, fmt.Sprintf(`"f:%s":{}`, key))
	}
	slices.Sort(fields)
	cp.SetLabels(all)
	cp.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "capi-topology", Operation: metav1.ManagedFieldsOperationApply, APIVersion: cp.GetAPIVersion(), FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{` + strings.Join(fields, ",") + `}}}`),
	}})
	w.others = append(w.others, cp)
}

// Whatever a patch makes of a control plane's own metadata is as declared, and the patch is its source. A declaration of the topology that
// the patch has removed or replaced has a reason. The Machine template inherits as without the patch.
func TestAControlPlaneWithPatches(t *testing.T) {
	const labels = "/spec/template/metadata/labels"
	const ofTopology, ofTemplate = "label team=a as declared: Cluster default/c (spec.topology.controlPlane.metadata.labels)",
		"template label team=a as declared: Cluster default/c (spec.topology.controlPlane.metadata.labels)"
	absent := "label team=a absent: Cluster default/c (spec.topology.controlPlane.metadata.labels) PatchedByClass"
	for name, tc := range map[string]struct {
		has   map[string]string
		paths []string
		want  []string
	}{
		"it adds a label": {map[string]string{"team": "a", "x.example/by": "p"}, []string{labels + "/x.example~1by"},
			[]string{ofTopology, "label x.example/by=p as declared: ClusterClass default/class (spec.patches[x.example~1by])", ofTemplate}},
		"it replaces a value": {map[string]string{"team": "b"}, []string{labels + "/other", labels + "/team"},
			[]string{"label team=b as declared: ClusterClass default/class (spec.patches[team])", absent, ofTemplate}},
		"it replaces the map":               {map[string]string{"x": "1"}, []string{labels}, []string{absent, "label x=1 as declared: ClusterClass default/class (spec.patches[labels])", ofTemplate}},
		"an extension":                      {map[string]string{"x": "1"}, []string{"extension"}, []string{absent, "label x=1 as declared: ClusterClass default/class (spec.patches[extension])", ofTemplate}},
		"the template's label":              {map[string]string{"team": "a", "x": "1"}, []string{labels + "/other"}, []string{ofTopology, "label x=1 set here", ofTemplate}},
		"a patch of the spec below changes": {map[string]string{"team": "a"}, []string{"/spec/template/spec/machineTemplate/metadata/labels"}, []string{ofTopology, ofTemplate}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTopology(t)
			w.patched(tc.has, tc.paths...)
			found := w.list(t, "cp", "")
			var all []string
			for _, e := range found.Items[0].Entries {
				if strings.HasSuffix(e.Key, "cluster-name") || strings.HasSuffix(e.Key, "/owned") {
					continue
				}
				text := fmt.Sprintf("%s %s=%s %s", e.Kind, e.Key, e.Value, e.Status)
				if e.Source != nil {
					text += ": " + e.From.String()
				}
				all = append(all, strings.TrimSpace(text+" "+e.Reason))
			}
			NewWithT(t).Expect(all).To(Equal(tc.want))
			NewWithT(t).Expect(found.Wrong()).To(BeFalse())
		})
	}
}

// Without a patch, the same control plane lacks the label of the topology, and Heirloom adds it.
func TestAControlPlaneWithoutPatches(t *testing.T) {
	w := newTopology(t)
	w.patched(nil)
	NewWithT(t).Expect(w.list(t, "cp", "").Wrong()).To(BeTrue())
}

// The answer for a key names the patch that has removed it, and says what to do.
func TestTheTraceOfAKeyThatAPatchRemoves(t *testing.T) {
	w := newTopology(t)
	w.patched(map[string]string{"x": "1"}, "/spec/template/metadata/labels")
	list := w.list(t, "cp", "team")
	entry := &list.Items[0].Entries[0]
	NewWithT(t).Expect(entry.Message).To(Equal("ClusterClass default/class (spec.patches[labels]) may change the metadata of AcmeControlPlane default/cp itself, " +
		"so Cluster API alone writes this label there, as the patch leaves it. The Machine template of AcmeControlPlane default/cp is not affected. " +
		"To have it on AcmeControlPlane default/cp itself, edit the patch: add single keys there, instead of a whole map."))
	list = w.list(t, "cp", "x")
	for _, s := range list.Items[0].steps(&list.Items[0].Entries[0]) {
		NewWithT(t).Expect(s.fine).To(BeTrue(), s.String()+s.has)
	}

	w.class.Spec.ControlPlane.MachineInfrastructure.TemplateRef.Name = "" // then only the control plane itself inherits
	NewWithT(t).Expect(w.list(t, "cp", "team").Items[0].Entries).To(ContainElement(HaveField("Reason", "PatchedByClass")))
	NewWithT(t).Expect(w.list(t, "cp", "team").Items[0].Entries).NotTo(ContainElement(HaveField("Reason", "NotPropagatedFromHere")))
}
