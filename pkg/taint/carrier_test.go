// SPDX-License-Identifier: Apache-2.0

package taint_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// In these documents TYPED stands for a list with a typed taint, NOTED for annotations with a taint. The taint follows a valid taint, so the
// error must name index 1.
const (
	typedFixture = "[{key: ok, effect: NoSchedule, propagation: Always}, {key: KEY, effect: NoSchedule, propagation: Always}]"
	notedFixture = "{taints.heirloom.dev/initialize: 'ok:NoSchedule,KEY:NoSchedule'}"
)

// carrier decodes an object like the webhook. The document is YAML; KEY becomes the key of its taint.
func carrier(t *testing.T, document, key string) *taint.Carrier {
	t.Helper()
	document = strings.NewReplacer("TYPED", typedFixture, "NOTED", notedFixture).Replace(document)
	raw, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(document, "KEY", key)))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	into := &taint.Carrier{}
	NewWithT(t).Expect(kjson.UnmarshalCaseSensitivePreserveInts(raw, into)).To(Succeed())
	return into
}

const noted = "[taints.heirloom.dev/initialize]"

// placesOfWorkers lists every place in which a kind can declare taints, with the field path that an error has to name.
var placesOfWorkers = []struct{ name, document, path string }{
	{"a Machine's own taints", "spec: {taints: TYPED}", "spec.taints[1].key"},
	{"any object's own annotations", "metadata: {annotations: NOTED}", "metadata.annotations" + noted},
	{"a template's taints", "spec: {template: {spec: {taints: TYPED}}}", "spec.template.spec.taints[1].key"},
	{"a template's annotations", "spec: {template: {metadata: {annotations: NOTED}}}", "spec.template.metadata.annotations" + noted},

	{"a topology's MachineDeployment, typed", "spec: {topology: {workers: {machineDeployments: [{name: a}, {name: b, taints: TYPED}]}}}", "spec.topology.workers.machineDeployments[1].taints[1].key"},
	{"a topology's MachineDeployment, annotated", "spec: {topology: {workers: {machineDeployments: [{name: a}, {name: b, metadata: {annotations: NOTED}}]}}}", "spec.topology.workers.machineDeployments[1].metadata.annotations" + noted},
	{"a topology's MachinePool, typed", "spec: {topology: {workers: {machinePools: [{name: a, taints: TYPED}]}}}", "spec.topology.workers.machinePools[0].taints[1].key"},
	{"a topology's MachinePool, annotated", "spec: {topology: {workers: {machinePools: [{name: a, metadata: {annotations: NOTED}}]}}}", "spec.topology.workers.machinePools[0].metadata.annotations" + noted},

	{"a ClusterClass's MachineDeployment, typed", "spec: {workers: {machineDeployments: [{class: a, taints: TYPED}]}}", "spec.workers.machineDeployments[0].taints[1].key"},
	{"a ClusterClass's MachineDeployment, annotated in v1beta2", "spec: {workers: {machineDeployments: [{class: a, metadata: {annotations: NOTED}}]}}", "spec.workers.machineDeployments[0].metadata.annotations" + noted},
	{"a ClusterClass's MachinePool, typed", "spec: {workers: {machinePools: [{class: a}, {class: b, taints: TYPED}]}}", "spec.workers.machinePools[1].taints[1].key"},
	{"a ClusterClass's MachinePool, annotated in v1beta2", "spec: {workers: {machinePools: [{class: a, metadata: {annotations: NOTED}}]}}", "spec.workers.machinePools[0].metadata.annotations" + noted},
}

// placesOfControlPlanes lists the places that always belong to a control plane, for every kind of object.
var placesOfControlPlanes = []struct{ name, document, path string }{
	{"a control plane's taints by the v1beta2 contract", "spec: {machineTemplate: {spec: {taints: TYPED}}}", "spec.machineTemplate.spec.taints[1].key"},
	{"a control plane's taints by the v1beta1 contract", "spec: {machineTemplate: {taints: TYPED}}", "spec.machineTemplate.taints[1].key"},
	{"a control plane's Machine template, annotated", "spec: {machineTemplate: {metadata: {annotations: NOTED}}}", "spec.machineTemplate.metadata.annotations" + noted},
	{"a topology's control plane, typed", "spec: {topology: {controlPlane: {taints: TYPED}}}", "spec.topology.controlPlane.taints[1].key"},
	{"a topology's control plane, annotated", "spec: {topology: {controlPlane: {metadata: {annotations: NOTED}}}}", "spec.topology.controlPlane.metadata.annotations" + noted},
	{"a ClusterClass's control plane, typed", "spec: {controlPlane: {taints: TYPED}}", "spec.controlPlane.taints[1].key"},
	{"a ClusterClass's control plane, annotated", "spec: {controlPlane: {metadata: {annotations: NOTED}}}", "spec.controlPlane.metadata.annotations" + noted},
	{"a control plane template's taints by the v1beta2 contract", "spec: {template: {spec: {machineTemplate: {spec: {taints: TYPED}}}}}", "spec.template.spec.machineTemplate.spec.taints[1].key"},
	{"a control plane template's taints by the v1beta1 contract", "spec: {template: {spec: {machineTemplate: {taints: TYPED}}}}", "spec.template.spec.machineTemplate.taints[1].key"},
	{"a control plane template's Machine template, annotated", "spec: {template: {spec: {machineTemplate: {metadata: {annotations: NOTED}}}}}", "spec.template.spec.machineTemplate.metadata.annotations" + noted},
}

func TestEveryPlaceIsValidated(t *testing.T) {
	for _, tc := range append(placesOfWorkers, placesOfControlPlanes...) {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			for _, controlPlane := range []bool{true, false} {
				bad := carrier(t, tc.document, "node.kubernetes.io/not-ready")
				Expect(brief(taint.ValidateCarrier(bad, nil, controlPlane))).To(Equal([]string{"Invalid " + tc.path}))
				Expect(taint.ValidateCarrier(carrier(t, tc.document, "gpu"), nil, controlPlane)).To(BeEmpty())
				Expect(taint.ValidateCarrier(bad, bad, controlPlane)).To(BeEmpty(), "an update that changes nothing is not judged")
			}
		})
	}
}

func TestWhoMayDeclareTheTaintOfTheControlPlane(t *testing.T) {
	const key = "node-role.kubernetes.io/control-plane"
	for _, tc := range placesOfWorkers {
		t.Run(tc.name+": not a worker", func(t *testing.T) {
			NewWithT(t).Expect(brief(taint.ValidateCarrier(carrier(t, tc.document, key), nil, false))).To(Equal([]string{"Invalid " + tc.path}))
		})
	}
	for _, tc := range placesOfControlPlanes {
		t.Run(tc.name+": it may", func(t *testing.T) {
			for _, controlPlane := range []bool{true, false} {
				NewWithT(t).Expect(taint.ValidateCarrier(carrier(t, tc.document, key), nil, controlPlane)).To(BeEmpty())
			}
		})
	}
	for _, tc := range []struct {
		name, document string
		controlPlane   bool
		want           []string
	}{
		{name: "a Machine of a control plane may, typed", document: "{metadata: {labels: {cluster.x-k8s.io/control-plane: ''}}, spec: {taints: TYPED}}"},
		{name: "a Machine of a control plane may, annotated", document: "metadata: {labels: {cluster.x-k8s.io/control-plane: ''}, annotations: NOTED}"},
		{name: "a control plane's own annotations may", document: "metadata: {annotations: NOTED}", controlPlane: true},
		{
			name:     "a MachineDeployment does not become a control plane by a label",
			document: "{metadata: {labels: {cluster.x-k8s.io/control-plane: ''}}, spec: {template: {spec: {taints: TYPED}}}}",
			want:     []string{"Invalid spec.template.spec.taints[1].key"},
		},
		{
			name:         "workers in an object of a control plane's group are still workers",
			document:     "spec: {topology: {workers: {machineDeployments: [{name: a, taints: TYPED}]}}}",
			controlPlane: true,
			want:         []string{"Invalid spec.topology.workers.machineDeployments[0].taints[1].key"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			errs := taint.ValidateCarrier(carrier(t, tc.document, key), nil, tc.controlPlane)
			NewWithT(t).Expect(brief(errs)).To(Equal(tc.want))
		})
	}
}
