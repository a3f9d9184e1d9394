// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// layout returns the layout of a control plane whose schema has the fields that present accepts.
func layout(version string, present func(path string) bool) inherit.Layout {
	return inherit.ControlPlaneLayout(version, func(path ...string) bool { return present(strings.Join(path, ".")) })
}

func without(prefix string) func(string) bool {
	return func(path string) bool { return !strings.HasPrefix(path, prefix) }
}

func only(paths ...string) func(string) bool {
	return func(path string) bool { return slices.Contains(paths, path) }
}

// A kind's layout follows from the OpenAPI document that the API server generates from its CRD.
func TestControlPlane(t *testing.T) {
	const at = "spec.machineTemplate"
	atomic := strings.NewReplacer("x-kubernetes-list-type: map", "x-kubernetes-list-type: atomic",
		", x-kubernetes-list-map-keys: [key, effect]", "", ", x-kubernetes-list-map-keys: [conditionType]", "")
	for _, tc := range []struct {
		name, fields string
		want         func(path string) bool
	}{
		{
			name: "a mixture", fields: "machineTemplate: " + object(metadata, durations, "spec: "+object(taints)),
			want: only(at+".metadata", at+".spec.taints", at+".nodeDrainTimeout", at+".nodeVolumeDetachTimeout", at+".nodeDeletionTimeout"),
		},
		{
			name: "applying an item of an atomic list owns the list", fields: atomic.Replace(newer()),
			want: func(path string) bool { return !strings.HasSuffix(path, "aints") && !strings.HasSuffix(path, "Gates") },
		},
		{
			name: "other keys than ours", fields: strings.Replace(older(), "[key, effect]", "[key]", 1),
			want: func(path string) bool { return without(at+".spec")(path) && path != at+".taints" },
		},
		{
			name: "the order of keys tells nothing", fields: strings.Replace(older(), "[key, effect]", "[effect, key]", 1),
			want: without(at + ".spec"),
		},
		{
			name:   "applying a part of an atomic map owns the map",
			fields: "machineTemplate: " + object(metadata, "spec: "+object(taints, strings.Replace(seconds, "type: object", "type: object, x-kubernetes-map-type: atomic", 1))),
			want:   only(at+".metadata", at+".spec.taints"),
		},
		{
			name: "metadata that keeps neither labels nor annotations", fields: "machineTemplate: " + object("metadata: {type: object}"),
			want: only(),
		},
		{
			name: "what is not declared does not count, whatever is kept", fields: "machineTemplate: {type: object, x-kubernetes-preserve-unknown-fields: true}",
			want: only(),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			server := newAPIServer()
			// The version of a provider's API does not show the version of the contract.
			server.serve(t, "v1", crd(t, "TestControlPlane", "v1", tc.fields), crd(t, "OtherControlPlane", "v1", older()))
			s := &Schemas{Client: server.client(t)}
			Expect(s.ControlPlane(t.Context(), kindOf("v1", "TestControlPlane"))).To(Equal(layout("v1", tc.want)))
		})
	}
}

// Cluster API's own provider has all fields, in both versions of its API.
func TestKubeadmControlPlane(t *testing.T) {
	Expect := NewWithT(t).Expect
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	Expect(err).NotTo(HaveOccurred())
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)),
		"controlplane/kubeadm/config/crd/bases/controlplane.cluster.x-k8s.io_kubeadmcontrolplanes.yaml"))
	Expect(err).NotTo(HaveOccurred())
	kcp := &apiextensionsv1.CustomResourceDefinition{}
	Expect(yaml.Unmarshal(text, kcp)).To(Succeed())
	server := newAPIServer()
	server.serve(t, "v1beta1", kcp)
	server.serve(t, "v1beta2", kcp)
	s := &Schemas{Client: server.client(t)}

	for version, want := range map[string]func(string) bool{
		"v1beta1": without("spec.machineTemplate.spec"),
		"v1beta2": without("spec.machineTemplate.nodeD"),
	} {
		Expect(s.ControlPlane(t.Context(), kindOf(version, "KubeadmControlPlane"))).To(Equal(layout(version, want)), version)
	}
}

// Other API servers may compose a kind from references, even from circular references.
func TestReferences(t *testing.T) {
	Expect := NewWithT(t).Expect
	document := &spec3.OpenAPI{}
	Expect(json.Unmarshal([]byte(`{"openapi": "3.0.0", "components": {"schemas": {
		"Kind": {
			"x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "Kind"}],
			"properties": {"spec": {"allOf": [{"$ref": "#/components/schemas/Spec"}], "default": {}}}},
		"Spec": {"allOf": [
			{"$ref": "#/components/schemas/Spec"}, {"$ref": "#/components/schemas/Missing"}, {"$ref": "#/elsewhere"},
			{"properties": {"machineTemplate": {"$ref": "#/components/schemas/Template"}}}]},
		"Template": {"properties": {
			"nodeDrainTimeout": {"type": "string"}, "spec": {"$ref": "#/components/schemas/Round"},
			"taints": {"allOf": [{"$ref": "#/components/schemas/Taints"}], "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key", "effect"]}}},
		"Taints": {"type": "array"},
		"Round": {"$ref": "#/components/schemas/About"},
		"About": {"$ref": "#/components/schemas/Round"},
		"Elsewhere": {"x-kubernetes-group-version-kind": [{"group": "g", "version": "v2", "kind": "Kind"}, {"group": "h", "version": "v1", "kind": "Other"}]},
		"Odd": {"x-kubernetes-group-version-kind": "no list"},
		"Nothing": null
	}}}`), document)).To(Succeed())

	Expect(layouts(document, schema.GroupVersion{Group: "g", Version: "v1"})).To(Equal(map[string]inherit.Layout{
		"Kind": layout("v1", only("spec.machineTemplate.taints", "spec.machineTemplate.nodeDrainTimeout")),
	}))
	Expect(layouts(&spec3.OpenAPI{}, schema.GroupVersion{Group: "g", Version: "v1"})).To(BeEmpty())
}
