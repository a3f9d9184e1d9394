// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Parts of documents: the controller of the object, the fields that Heirloom owns, and the Cluster.
const (
	bySet        = "ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineSet, name: ms, uid: ms, controller: true}]"
	byDeployment = "ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineDeployment, name: md, uid: md, controller: true}]"
	ownsTeam     = "managedFields: [{manager: heirloom, operation: Apply, apiVersion: cluster.x-k8s.io/v1beta2, fieldsType: FieldsV1, fieldsV1: {'f:metadata': {'f:labels': {'f:team': {}}}}}]"
	inCluster    = "spec: {clusterName: c}"
	compared     = ", annotations: {topology.cluster.x-k8s.io/dry-run: ''}"
	deleted      = ", deletionTimestamp: '2026-11-21T12:00:00Z'"
)

var ordinary = fleet{
	clusters:    map[string]string{"ns/c": "{}"},
	deployments: map[string]string{"ns/md": "{spec: {clusterName: c, template: {metadata: {labels: {team: a}}}}}"},
	sets:        map[string]string{"ns/ms": "{metadata: {" + byDeployment + "}, spec: {clusterName: c, template: {metadata: {labels: {team: a}}}}}"},
}

func machine(metadata string) string {
	return "{metadata: {namespace: ns, name: x, " + metadata + "}, " + inCluster + "}"
}

type childCase struct {
	name     string
	cache    fleet
	live     client.Reader
	policy   inherit.Policy
	request  write
	want     []string
	warnings []string
	outcome  string
}

func (tc childCase) run(t *testing.T) {
	t.Helper()
	Expect := NewWithT(t).Expect
	s := newServer(t, tc.cache, tc.live, tc.policy)
	req := tc.request.request(t)
	response := s.asks(t, req)
	Expect(response.Allowed).To(BeTrue())
	Expect(patch(t, response)).To(Equal(tc.want))
	Expect(response.Warnings).To(HaveLen(len(tc.warnings)), "%q", response.Warnings)
	for i, warning := range tc.warnings {
		Expect(response.Warnings[i]).To(ContainSubstring(warning))
	}
	Expect(s.counted(t)).To(Equal([]string{fmt.Sprintf("%s %s %s", req.Kind.Kind, req.Operation, tc.outcome)}))
}

func TestMachines(t *testing.T) {
	const addsTeam, inherits = `{"op":"add","path":"/metadata/labels","value":{"team":"a"}}`, "{metadata: {" + bySet + "}, spec: {clusterName: c}}"
	unknown := fleet{clusters: ordinary.clusters}
	for _, tc := range []childCase{
		{name: "a new Machine inherits", cache: ordinary, request: write{kind: "Machine", object: machine(bySet)}, want: []string{addsTeam}, outcome: "injected"},
		{name: "an update that takes a label away gets it back, and is told", cache: ordinary, request: write{kind: "Machine", object: machine(bySet + ", " + ownsTeam), old: machine(bySet + ", labels: {team: a}, " + ownsTeam)}, want: []string{addsTeam}, warnings: []string{`heirloom: label "team" of Machine ns/x was kept: it is inherited; to change it, edit MachineDeployment ns/md (spec.template.metadata.labels)`}, outcome: "injected"},
		{name: "a taint that may not be inherited is left out, and said so", cache: ordinary.with(func(f *fleet) {
			f.sets = map[string]string{"ns/ms": "{spec: {clusterName: c, template: {spec: {taints: [{key: node.kubernetes.io/x, effect: NoSchedule, propagation: Always}]}}}}"}
		}), request: write{kind: "Machine", object: machine(bySet)}, warnings: []string{`heirloom: not inherited: MachineSet ns/ms (spec.template.spec.taints): taint "node.kubernetes.io/x:NoSchedule"`}, outcome: "unchanged"},

		{name: "a Machine that is being deleted is skipped", cache: ordinary, request: write{kind: "Machine", object: machine(bySet + deleted), old: machine(bySet + deleted)}, outcome: "unmatched"},
		{name: "a Machine that is created by apply with that field inherits", cache: ordinary, request: write{kind: "Machine", object: machine(bySet + deleted)}, want: []string{addsTeam}, outcome: "injected"},

		{name: "a dry run of Cluster API's topology controller, which compares two results, stays as it is", cache: ordinary, request: write{kind: "Machine", object: machine(bySet + compared), dryRun: true}, outcome: "unmatched"},
		{name: "any other dry run inherits", cache: ordinary, request: write{kind: "Machine", object: machine(bySet), dryRun: true}, want: []string{addsTeam}, outcome: "injected"},
		{name: "a real write with its annotation inherits", cache: ordinary, request: write{kind: "Machine", object: machine(bySet + compared)}, want: []string{addsTeam}, outcome: "injected"},

		{name: "an owner that is not cached is asked for", cache: unknown, live: ordinary.reader(t), request: write{kind: "Machine", object: machine(bySet)}, want: []string{addsTeam}, outcome: "injected"},
		{name: "a Machine of a Cluster that is not cached yet inherits", cache: ordinary.with(func(f *fleet) { f.clusters = nil }), live: ordinary.reader(t), request: write{kind: "Machine", object: machine(bySet)}, want: []string{addsTeam}, outcome: "injected"},
		{name: "a Machine of a Cluster that nobody knows inherits later: the Cluster may be paused", cache: ordinary.with(func(f *fleet) { f.clusters = nil }), live: ordinary.with(func(f *fleet) { f.clusters = nil }).reader(t), request: write{kind: "Machine", object: machine(bySet)}, outcome: "unmatched"},
		{name: "an owner that nobody finds takes nothing away", cache: unknown, live: fleet{}.reader(t), request: write{kind: "Machine", object: machine(bySet + ", labels: {team: a}, " + ownsTeam), old: inherits}, outcome: "unmatched"},
		{name: "an owner that cannot be asked for lets the Machine pass", cache: unknown, live: broken.reader(t), request: write{kind: "Machine", object: machine(bySet)}, warnings: []string{"the object inherited nothing with this write"}, outcome: "failed"},
		{
			name: "an object that the API server does not convert passes, and is told why", cache: ordinary, outcome: "failed",
			request:  write{kind: "MachineDeployment", object: "{apiVersion: cluster.x-k8s.io/v1beta1, kind: MachineDeployment, metadata: {namespace: ns, name: x}, spec: {clusterName: c, template: {}}}"},
			warnings: []string{"heirloom: the object inherited nothing with this write: the request has API version v1beta1 instead of cluster.x-k8s.io/v1beta2: upgrade Heirloom's webhook configuration"},
		},
		{name: "managed fields of ours that cannot be read let the Machine pass", cache: ordinary, request: write{kind: "Machine", object: machine(bySet + ", managedFields: [{manager: heirloom, operation: Apply, fieldsV1: {'k:rubbish': {}}}]")}, warnings: []string{`metadata.managedFields of manager "heirloom"`}, outcome: "failed"},
	} {
		t.Run(tc.name, tc.run)
	}
}

// An entry that Cluster API removes, because an owner no longer declares it, does not come back while the cache is stale. An entry that
// another client removes comes back.
func TestStaleCachesRestoreNothing(t *testing.T) {
	const putsBack = `{"op":"add","path":"/metadata/labels","value":{"team":"a"}}`
	undeclared := ordinary.with(func(f *fleet) {
		f.sets = map[string]string{"ns/ms": "{metadata: {" + byDeployment + "}, spec: {clusterName: c}}"}
		f.deployments = map[string]string{"ns/md": "{spec: {clusterName: c}}"}
	})
	renamed := ordinary.with(func(f *fleet) {
		f.sets = map[string]string{"ns/ms": "{metadata: {" + byDeployment + "}, spec: {clusterName: c, template: {metadata: {labels: {team: b}}}}}"}
		f.deployments = map[string]string{"ns/md": "{spec: {clusterName: c, template: {metadata: {labels: {team: b}}}}}"}
	})
	removal := write{kind: "Machine", object: machine(bySet), old: machine(bySet + ", labels: {team: a}")}
	const key = "node.cluster.x-k8s.io/a"
	labeled := func(f fleet, labels string) fleet {
		f.machines = map[string]string{"ns/m": "{metadata: {" + bySet + ", labels: {" + labels + "}}, spec: {clusterName: c}, status: {nodeRef: {name: node-1}}}"}
		return f
	}
	tracked := func(label, tracks string) string {
		return "{metadata: {name: node-1, labels: {" + label + "heirloom.node-restriction.kubernetes.io/record: " + recorded("") + "}, " +
			"annotations: {cluster.x-k8s.io/labels-from-machine: '" + tracks + "', cluster.x-k8s.io/taints-from-machine: ''}}}"
	}
	fromNode := write{kind: "Node", object: tracked("", ""), old: tracked(key+": '1', ", key)}
	for _, tc := range []struct {
		name        string
		cache, live fleet
		request     write
		want        []string
	}{
		{"an owner that no longer declares it", ordinary, undeclared, removal, nil},
		{"an owner that declares it", ordinary, ordinary, removal, []string{putsBack}},
		{"an API server that does not answer", ordinary, broken, removal, []string{putsBack}},
		{"a Cluster that has been paused", ordinary, ordinary.with(func(f *fleet) { f.clusters = map[string]string{"ns/c": "spec: {paused: true}"} }), removal, nil},
		{"a create", ordinary, undeclared, write{kind: "Machine", object: machine(bySet)}, []string{putsBack}},
		{"a create whose value the owner has changed", ordinary, renamed, write{kind: "Machine", object: machine(bySet + ", labels: {team: b}")}, nil},
		{"a create with another value", ordinary, ordinary, write{kind: "Machine", object: machine(bySet + ", labels: {team: b}")}, []string{putsBack}},
		{"a Node whose Machine no longer has it", labeled(ordinary, key+": '1'"), labeled(undeclared, ""), fromNode, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer(t, tc.cache, tc.live.reader(t), inherit.Policy{})
			NewWithT(t).Expect(patch(t, s.asks(t, tc.request.request(t)))).To(Equal(tc.want))
		})
	}
}
