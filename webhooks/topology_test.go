// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// contract has the schemas of an API server that knows AcmeControlPlane, with these fields below spec.machineTemplate.
type contract struct {
	fields string
	err    error
}

func (c contract) ControlPlane(_ context.Context, gvk schema.GroupVersionKind) (inherit.Layout, error) {
	if want := "controlplane.cluster.x-k8s.io/v1beta2, Kind=AcmeControlPlane"; c.err == nil && gvk.String() != want {
		return inherit.Layout{}, fmt.Errorf("asked for %s", gvk)
	}
	return inherit.ControlPlaneLayout(gvk.Version, func(path ...string) bool {
		return slices.Contains(strings.Fields(c.fields), strings.TrimPrefix(strings.Join(path, "."), "spec.machineTemplate."))
	}), c.err
}

var (
	newer = contract{fields: "metadata spec.taints spec.readinessGates spec.deletion.nodeDrainTimeoutSeconds"}
	older = contract{fields: "metadata taints readinessGates nodeDrainTimeout"}
)

// What a ClusterClass and a topology declare for each kind, who belongs to the topology, and what a warning says of it.
const (
	classSection   = "metadata: {labels: {team: class}}, taints: [{key: gpu, effect: NoSchedule, propagation: Always}], deletion: {nodeDrainTimeoutSeconds: 90}"
	clusterSection = "metadata: {labels: {team: a}}"

	ofTopology = "cluster.x-k8s.io/cluster-name: c, topology.cluster.x-k8s.io/owned: '', topology.cluster.x-k8s.io/deployment-name: a, topology.cluster.x-k8s.io/pool-name: a"
	wasKept    = "was kept: it is inherited; to change it, edit "

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

type topologyCase struct {
	name     string
	cache    fleet
	policy   inherit.Policy
	schemas  contract
	request  write
	want     []string
	warnings []string
	outcome  string
}

func (tc topologyCase) run(t *testing.T) {
	t.Helper()
	Expect := NewWithT(t).Expect
	s := newServer(t, tc.cache, nil, tc.policy)
	s.Chain.Layout = tc.schemas.ControlPlane
	req, counted := tc.request.request(t), strings.TrimPrefix(tc.request.kind, "Acme")
	response := s.asks(t, req)
	Expect(response.Allowed).To(BeTrue())
	Expect(patch(t, response)).To(Equal(tc.want))
	Expect(response.Warnings).To(HaveExactElements(tc.warnings))
	Expect(s.counted(t)).To(Equal([]string{fmt.Sprintf("%s %s %s", counted, req.Operation, tc.outcome)}))
}

// described is a document of ns/x; metadata and spec are what it has beside namespace, name and Cluster.
func described(apiVersion, kind, metadata, spec string) string {
	return "{apiVersion: " + apiVersion + ", kind: " + kind + ", metadata: {namespace: ns, name: x, " + metadata + "}, spec: {clusterName: c, " + spec + "}}"
}

func TestMachineDeployments(t *testing.T) {
	md := func(labels, metadata, spec string) string {
		return described("cluster.x-k8s.io/v1beta2", "MachineDeployment", "labels: {"+labels+ofTopology+"}, "+metadata, "template: {"+spec+"}")
	}
	inherited := "metadata: {labels: {team: a}}, spec: {minReadySeconds: 5, deletion: {nodeDrainTimeoutSeconds: 90}, taints: [{key: gpu, effect: NoSchedule, propagation: Always}]}"
	const ownsOld = "managedFields: [{manager: heirloom, operation: Apply, apiVersion: cluster.x-k8s.io/v1beta2, fieldsType: FieldsV1, fieldsV1: {'f:metadata': {'f:labels': {'f:old': {}}}, 'f:spec': {'f:template': {'f:metadata': {'f:labels': {'f:old': {}}}}}}}]"
	for _, tc := range []topologyCase{
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
			warnings: []string{"heirloom: nothing was inherited by this write: the request is in v1beta1, not in cluster.x-k8s.io/v1beta2: upgrade Heirloom's webhook configuration"},
		},
		{name: "one that has it all is left as it is", cache: topological, request: write{kind: "MachineDeployment", object: md("team: a, ", "", inherited)}, outcome: "unchanged"},
		{name: "typed taints stay where Cluster API would refuse them", cache: topological, policy: inherit.Policy{ClusterAPITaints: inherit.PropagationDisabled}, request: write{kind: "MachineDeployment", object: md("team: a, ", "", "metadata: {labels: {team: a}}, spec: {minReadySeconds: 5, deletion: {nodeDrainTimeoutSeconds: 90}}")}, outcome: "unchanged"},
		{
			name: "an update that takes things away gets them back, and is told of each", cache: topological, outcome: "injected",
			request: write{kind: "MachineDeployment", object: md("", "", "metadata: {}, spec: {deletion: {nodeDrainTimeoutSeconds: 90}}"), old: md("team: a, ", "", inherited)},
			want: []string{
				withLabels(`"team":"a",`), adds("/spec/template/metadata/labels", `{"team":"a"}`),
				adds("/spec/template/spec/taints", "["+gpuTaint+"]"), adds("/spec/template/spec/minReadySeconds", "5"),
			},
			warnings: []string{
				`heirloom: label "team" of MachineDeployment ns/x ` + wasKept + "Cluster ns/c (spec.topology.workers.machineDeployments[a].metadata.labels)",
				`heirloom: template label "team" of MachineDeployment ns/x ` + wasKept + "Cluster ns/c (spec.topology.workers.machineDeployments[a].metadata.labels)",
				`heirloom: template taint "gpu:NoSchedule" of MachineDeployment ns/x ` + wasKept + "ClusterClass ns/cc (spec.workers.machineDeployments[small].taints)",
				`heirloom: template field "minReadySeconds" of MachineDeployment ns/x ` + wasKept + "ClusterClass ns/cc (spec.workers.machineDeployments[small].minReadySeconds)",
			},
		},
		{
			name: "an update of one that never had it is not told", cache: topological, outcome: "injected",
			request: write{kind: "MachineDeployment", object: md("", "", inherited), old: md("", "", inherited)}, want: []string{withLabels(`"team":"a",`)},
		},
		{
			name: "what is declared no more goes, and the template keeps no empty metadata", cache: topological.with(func(f *fleet) {
				f.classes = map[string]string{"ns/cc": "{spec: {workers: {machineDeployments: [{class: small}]}}}"}
				f.clusters = map[string]string{"ns/c": "{spec: {topology: {classRef: {name: cc}, workers: {machineDeployments: [{name: a, class: small}]}}}}"}
			}), outcome: "injected",
			request: write{kind: "MachineDeployment", object: md("old: '1', ", ownsOld, "metadata: {labels: {old: '1'}}, spec: {}"), old: "{}"},
			want:    []string{withLabels(""), `{"op":"remove","path":"/spec/template/metadata"}`},
		},
		{
			name: "a taint that may not be inherited is left out, and said so", cache: topological.with(func(f *fleet) {
				f.classes = map[string]string{"ns/cc": "{spec: {workers: {machineDeployments: [{class: small, taints: [{key: node.kubernetes.io/x, effect: NoSchedule, propagation: Always}]}]}}}"}
			}), outcome: "unchanged",
			request:  write{kind: "MachineDeployment", object: md("team: a, ", "", "metadata: {labels: {team: a}}")},
			warnings: []string{`heirloom: not inherited: ClusterClass ns/cc (spec.workers.machineDeployments[small].taints): taint "node.kubernetes.io/x:NoSchedule": the prefix node.kubernetes.io/ is reserved for the kubelet and the node lifecycle controller; only node.kubernetes.io/out-of-service may be set`},
		},
		{name: "one that no topology manages is none of our business", cache: topological, request: write{kind: "MachineDeployment", object: described("cluster.x-k8s.io/v1beta2", "MachineDeployment", "labels: {cluster.x-k8s.io/cluster-name: c}", "template: {}")}, outcome: "unmatched"},
		{name: "a paused one is left alone", cache: topological, request: write{kind: "MachineDeployment", object: md("", "annotations: {cluster.x-k8s.io/paused: ''}", "")}, outcome: "unmatched"},
		{name: "one whose ClusterClass is not there is left as it is", cache: fleet{clusters: topological.clusters}, request: write{kind: "MachineDeployment", object: md("", ownsOld, ""), old: "{}"}, outcome: "unmatched"},
		{name: "a cache that fails lets it pass", cache: fleet{err: errors.New("timeout")}, request: write{kind: "MachineDeployment", object: md("", "", "")}, outcome: "failed", warnings: []string{"heirloom: nothing was inherited by this write: getting Cluster ns/c: timeout"}},
	} {
		t.Run(tc.name, tc.run)
	}
}

func TestMachinePools(t *testing.T) {
	mp := func(labels, annotations string) string {
		return described("cluster.x-k8s.io/v1beta2", "MachinePool", "labels: {"+labels+ofTopology+"}", "template: {metadata: {labels: {"+labels+"mine: '1'}, annotations: {"+annotations+"}}, spec: {deletion: {nodeDrainTimeoutSeconds: 90}}}")
	}
	annotates := adds("/spec/template/metadata/annotations", `{"mine":"1","taints.heirloom.dev/always":"gpu:NoSchedule"}`)
	for _, tc := range []topologyCase{
		{name: "a new MachinePool inherits, typed taints by annotation", cache: topological, request: write{kind: "MachinePool", object: mp("", "mine: '1'")}, outcome: "injected", want: []string{
			withLabels(`"team":"a",`), adds("/spec/template/metadata/labels", `{"mine":"1","team":"a"}`), annotates,
		}},
		{name: "whatever Cluster API's feature gate says", cache: topological, policy: inherit.Policy{ClusterAPITaints: inherit.PropagationDisabled}, request: write{kind: "MachinePool", object: mp("team: a, ", "mine: '1'")}, outcome: "injected", want: []string{annotates}},
		{name: "one that has it all is left as it is", cache: topological, request: write{kind: "MachinePool", object: mp("team: a, ", "taints.heirloom.dev/always: 'gpu:NoSchedule'")}, outcome: "unchanged"},
		{
			name: "an update that takes things away gets them back, and is told", cache: topological, outcome: "injected",
			request: write{kind: "MachinePool", object: mp("team: a, ", "mine: '1'"), old: mp("team: a, ", "taints.heirloom.dev/always: 'gpu:NoSchedule'")}, want: []string{annotates},
			warnings: []string{`heirloom: template annotation "taints.heirloom.dev/always" of MachinePool ns/x ` + wasKept + "ClusterClass ns/cc (spec.workers.machinePools[small].taints)"},
		},
	} {
		t.Run(tc.name, tc.run)
	}
}

func TestControlPlanes(t *testing.T) {
	cp := func(labels, machineTemplate string) string {
		return described("controlplane.cluster.x-k8s.io/v1beta2", "AcmeControlPlane", "labels: {"+labels+ofTopology+"}", "machineTemplate: "+machineTemplate)
	}
	const taints = "taints: [{key: gpu, effect: NoSchedule, propagation: Always}]"
	labels, below := withLabels(`"team":"a",`), adds("/spec/machineTemplate/metadata/labels", `{"team":"a"}`)
	for _, tc := range []topologyCase{
		{name: "one of the v1beta2 contract inherits into spec.machineTemplate.spec", cache: topological, schemas: newer, request: write{kind: "AcmeControlPlane", object: cp("", "{}")}, outcome: "injected", want: []string{
			labels, adds("/spec/machineTemplate/metadata", "{}"), below,
			adds("/spec/machineTemplate/spec", "{}"), adds("/spec/machineTemplate/spec/taints", "["+gpuTaint+"]"),
			adds("/spec/machineTemplate/spec/deletion", "{}"), adds("/spec/machineTemplate/spec/deletion/nodeDrainTimeoutSeconds", "90"),
		}},
		{name: "one of the v1beta1 contract inherits into spec.machineTemplate", cache: topological, schemas: older, request: write{kind: "AcmeControlPlane", object: cp("", "{metadata: {}}")}, outcome: "injected", want: []string{
			labels, below, adds("/spec/machineTemplate/taints", "["+gpuTaint+"]"), adds("/spec/machineTemplate/nodeDrainTimeout", `"1m30s"`),
		}},
		{name: "a kind with neither inherits metadata", cache: topological, schemas: contract{}, request: write{kind: "AcmeControlPlane", object: cp("", "{}")}, outcome: "injected", want: []string{labels}},
		{name: "so does one without a template for Machines", cache: topological, schemas: newer, request: write{kind: "AcmeControlPlane", object: cp("", "null")}, outcome: "injected", want: []string{labels}},
		{name: "one of a class without Machines has no metadata for them", cache: topological.with(func(f *fleet) {
			f.classes = map[string]string{"ns/cc": "{spec: {controlPlane: {" + classSection + "}}}"}
		}), schemas: older, request: write{kind: "AcmeControlPlane", object: cp("team: a, ", "{}")}, outcome: "injected", want: []string{
			adds("/spec/machineTemplate/taints", "["+gpuTaint+"]"), adds("/spec/machineTemplate/nodeDrainTimeout", `"1m30s"`),
		}},
		{name: "one that has it all is left as it is", cache: topological, schemas: newer, request: write{kind: "AcmeControlPlane", object: cp("team: a, ", "{metadata: {labels: {team: a}}, spec: {deletion: {nodeDrainTimeoutSeconds: 90}, "+taints+"}}")}, outcome: "unchanged"},
		{
			name: "an update that takes things away gets them back, and is told of each", cache: topological, schemas: older, outcome: "injected",
			request: write{kind: "AcmeControlPlane", object: cp("", "{nodeDrainTimeout: 1m30s}"), old: cp("team: a, ", "{metadata: {labels: {team: a}}, nodeDrainTimeout: 1m30s, "+taints+"}")},
			want:    []string{labels, adds("/spec/machineTemplate/metadata", "{}"), below, adds("/spec/machineTemplate/taints", "["+gpuTaint+"]")},
			warnings: []string{
				`heirloom: label "team" of AcmeControlPlane ns/x ` + wasKept + "Cluster ns/c (spec.topology.controlPlane.metadata.labels)",
				`heirloom: template label "team" of AcmeControlPlane ns/x ` + wasKept + "Cluster ns/c (spec.topology.controlPlane.metadata.labels)",
				`heirloom: template taint "gpu:NoSchedule" of AcmeControlPlane ns/x ` + wasKept + "ClusterClass ns/cc (spec.controlPlane.taints)",
			},
		},
		{name: "a schema that cannot be read lets it pass", cache: topological, schemas: contract{err: errors.New("no schema")}, request: write{kind: "AcmeControlPlane", object: cp("", "{}")}, outcome: "failed", warnings: []string{"heirloom: nothing was inherited by this write: no schema"}},
		{name: "nobody asks for the schema of what inherits nothing", cache: fleet{}, schemas: contract{err: errors.New("no schema")}, request: write{kind: "AcmeControlPlane", object: cp("", "{}")}, outcome: "unmatched"},
	} {
		t.Run(tc.name, tc.run)
	}
}

func TestExternal(t *testing.T) {
	const byMachine, bySetYet = "ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, name: m, uid: m, controller: true}]",
		"ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineSet, name: ms, uid: ms}]"
	infra := func(kind, labels, metadata string) string {
		return described("infrastructure.cluster.x-k8s.io/v1beta1", kind, "labels: {"+labels+"cluster.x-k8s.io/cluster-name: c}, "+metadata, "")
	}
	cached := ordinary.with(func(f *fleet) {
		f.machines = map[string]string{"ns/m": "{metadata: {" + bySet + "}, spec: {clusterName: c, infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: InfraMachine, name: x}}}"}
	})
	managed := cached.with(func(f *fleet) {
		f.machines = map[string]string{"ns/m": strings.Replace(f.machines["ns/m"], "metadata: {", "metadata: {labels: {topology.cluster.x-k8s.io/owned: ''}, ", 1)}
	})
	addsTeam := adds("/metadata/labels", `{"cluster.x-k8s.io/cluster-name":"c","team":"a"}`)
	for _, tc := range []topologyCase{
		{name: "a new InfraMachine inherits from who will own its Machine", cache: cached, request: write{kind: "InfraMachine", object: infra("InfraMachine", "", bySetYet)}, want: []string{addsTeam}, outcome: "injected"},
		{name: "one that has it all is left as it is", cache: cached, request: write{kind: "InfraMachine", object: infra("InfraMachine", "team: a, ", byMachine)}, outcome: "unchanged"},
		{
			name: "an update that takes a label away gets it back, and is told", cache: cached, want: []string{addsTeam}, outcome: "injected",
			request:  write{kind: "InfraMachine", object: infra("InfraMachine", "", byMachine), old: infra("InfraMachine", "team: a, ", byMachine)},
			warnings: []string{`heirloom: label "team" of InfraMachine ns/x was kept: it is inherited; to change it, edit MachineDeployment ns/md (spec.template.metadata.labels)`},
		},
		{
			name: "in a topology it is to be changed in the Cluster", cache: managed, want: []string{addsTeam}, outcome: "injected",
			request:  write{kind: "InfraMachine", object: infra("InfraMachine", "", byMachine), old: infra("InfraMachine", "team: a, ", byMachine)},
			warnings: []string{`heirloom: label "team" of InfraMachine ns/x ` + wasKept + "Cluster ns/c (spec.topology)"},
		},
		{name: "a template is none of our business", cache: cached, request: write{kind: "InfraMachine", object: infra("InfraMachineTemplate", "", bySetYet)}, outcome: "unmatched"},
		{name: "an InfraMachine on its own is none of our business", cache: cached, request: write{kind: "InfraMachine", object: infra("InfraMachine", "", "")}, outcome: "unmatched"},
		{name: "an owner that nobody finds takes nothing away", cache: fleet{}, request: write{kind: "InfraMachine", object: infra("InfraMachine", "team: a, ", byMachine+", "+ownsTeam), old: "{}"}, outcome: "unmatched"},
	} {
		t.Run(tc.name, tc.run)
	}
}
