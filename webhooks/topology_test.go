// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// contract has the schemas of an API server that knows AcmeControlPlane, with these fields below spec.machineTemplate.
type contract struct{ fields string }

func (c contract) ControlPlane(_ context.Context, gvk schema.GroupVersionKind) (inherit.Layout, error) {
	if want := "controlplane.cluster.x-k8s.io/v1beta2, Kind=AcmeControlPlane"; gvk.String() != want {
		return inherit.Layout{}, fmt.Errorf("asked for %s", gvk)
	}
	return inherit.ControlPlaneLayout(gvk.Version, func(path ...string) bool {
		return slices.Contains(strings.Fields(c.fields), strings.TrimPrefix(strings.Join(path, "."), "spec.machineTemplate."))
	}), nil
}

var newer = contract{fields: "metadata spec.taints spec.readinessGates spec.deletion.nodeDrainTimeoutSeconds"}

// What a ClusterClass and a topology declare for each kind, who belongs to the topology, and what a warning says of it.
const (
	classSection   = "metadata: {labels: {team: class}}, taints: [{key: gpu, effect: NoSchedule, propagation: Always}], deletion: {nodeDrainTimeoutSeconds: 90}"
	clusterSection = "metadata: {labels: {team: a}}"

	ofTopology = "cluster.x-k8s.io/cluster-name: c, topology.cluster.x-k8s.io/owned: '', topology.cluster.x-k8s.io/deployment-name: a, topology.cluster.x-k8s.io/pool-name: a"

	gpuTaint = `{"effect":"NoSchedule","key":"gpu","propagation":"Always"}`
)

var topological = fleet{
	classes: map[string]string{"ns/cc": "{spec: {controlPlane: {machineInfrastructure: {templateRef: {name: t}}, " + classSection + "}, " +
		"workers: {machineDeployments: [{class: small, minReadySeconds: 5, " + classSection + "}], machinePools: [{class: small, " + classSection + "}]}}}"},
	clusters: map[string]string{"ns/c": "{spec: {topology: {classRef: {name: cc}, controlPlane: {" + clusterSection + "}, " +
		"workers: {machineDeployments: [{name: a, class: small, " + clusterSection + "}], machinePools: [{name: a, class: small, " + clusterSection + "}]}}}}"},
}

// withLabels is the operation that gives the object these labels beside those that make it one of the topology.
func withLabels(labels string) string {
	return `{"op":"add","path":"/metadata/labels","value":{"cluster.x-k8s.io/cluster-name":"c",` + labels +
		`"topology.cluster.x-k8s.io/deployment-name":"a","topology.cluster.x-k8s.io/owned":"","topology.cluster.x-k8s.io/pool-name":"a"}}`
}

func adds(path, value string) string {
	return `{"op":"add","path":"` + path + `","value":` + value + `}`
}

// described is a document of ns/x; metadata and spec are what it has beside namespace, name and Cluster.
func described(apiVersion, kind, metadata, spec string) string {
	return "{apiVersion: " + apiVersion + ", kind: " + kind + ", metadata: {namespace: ns, name: x, " + metadata + "}, spec: {clusterName: c, " + spec + "}}"
}

func TestMachineDeployments(t *testing.T) {
	md := func(labels, metadata, spec string) string {
		return described("cluster.x-k8s.io/v1beta2", "MachineDeployment", "labels: {"+labels+ofTopology+"}, "+metadata, "template: {"+spec+"}")
	}
	const ownsOld = "managedFields: [{manager: heirloom, operation: Apply, apiVersion: cluster.x-k8s.io/v1beta2, fieldsType: FieldsV1, fieldsV1: {'f:metadata': {'f:labels': {'f:old': {}}}, 'f:spec': {'f:template': {'f:metadata': {'f:labels': {'f:old': {}}}}}}}]"
	for _, tc := range []childCase{
		{name: "a new MachineDeployment inherits at both places", cache: topological, request: write{kind: "MachineDeployment", object: md("", "", "metadata: {}, spec: {}")}, outcome: "injected", want: []string{
			withLabels(`"team":"a",`),
			adds("/spec/template/metadata/labels", `{"team":"a"}`),
			adds("/spec/template/spec/taints", "["+gpuTaint+"]"),
			adds("/spec/template/spec/deletion", "{}"), adds("/spec/template/spec/deletion/nodeDrainTimeoutSeconds", "90"),
			adds("/spec/template/spec/minReadySeconds", "5"),
		}},
		{
			name: "one that the API server does not convert passes, and is told why", cache: topological, outcome: "failed",
			request:  write{kind: "MachineDeployment", object: described("cluster.x-k8s.io/v1beta1", "MachineDeployment", "labels: {"+ofTopology+"}", "template: {}")},
			warnings: []string{"heirloom: the object inherited nothing with this write: the request has API version v1beta1 instead of cluster.x-k8s.io/v1beta2: upgrade Heirloom's webhook configuration"},
		},
		{
			name: "what is declared no more goes, and the template keeps no empty metadata", cache: topological.with(func(f *fleet) {
				f.classes = map[string]string{"ns/cc": "{spec: {workers: {machineDeployments: [{class: small}]}}}"}
				f.clusters = map[string]string{"ns/c": "{spec: {topology: {classRef: {name: cc}, workers: {machineDeployments: [{name: a, class: small}]}}}}"}
			}), outcome: "injected",
			request: write{kind: "MachineDeployment", object: md("old: '1', ", ownsOld, "metadata: {labels: {old: '1'}}, spec: {}"), old: "{}"},
			want:    []string{withLabels(""), `{"op":"remove","path":"/spec/template/metadata"}`},
		},
	} {
		t.Run(tc.name, tc.run)
	}
}
