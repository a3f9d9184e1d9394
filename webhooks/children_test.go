// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Parts of documents: who controls the object, what Heirloom owns of it, and which Cluster it belongs to.
const (
	bySet        = "ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineSet, name: ms, uid: ms, controller: true}]"
	byDeployment = "ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineDeployment, name: md, uid: md, controller: true}]"
	ownsTeam     = "managedFields: [{manager: heirloom, operation: Apply, apiVersion: cluster.x-k8s.io/v1beta2, fieldsType: FieldsV1, fieldsV1: {'f:metadata': {'f:labels': {'f:team': {}}}}}]"
	inCluster    = "spec: {clusterName: c}"
	deleted      = ", deletionTimestamp: '2026-11-21T12:00:00Z'"
)

var ordinary = fleet{
	clusters:    map[string]string{"ns/c": "{}"},
	deployments: map[string]string{"ns/md": "{spec: {clusterName: c, template: {metadata: {labels: {team: a}}}}}"},
	sets:        map[string]string{"ns/ms": "{metadata: {" + byDeployment + "}, spec: {clusterName: c, template: {metadata: {labels: {team: a}}}}}"},
}

// with returns the fleet after a change.
func (f fleet) with(change func(*fleet)) fleet {
	change(&f)
	return f
}

func machine(metadata string) string {
	return "{metadata: {namespace: ns, name: x, " + metadata + "}, " + inCluster + "}"
}

type childCase struct {
	name     string
	cache    fleet
	live     *fleet
	policy   inherit.Policy
	request  write
	want     []string
	warnings []string
	outcome  string
}

func (tc childCase) run(t *testing.T) {
	t.Helper()
	Expect := NewWithT(t).Expect
	s := newServer(t, tc.cache, nil, tc.policy)
	if tc.live != nil {
		s = newServer(t, tc.cache, *tc.live, tc.policy)
	}
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
	nothing, broken := fleet{}, fleet{err: errors.New("timeout")}
	for _, tc := range []childCase{
		{name: "a new Machine inherits", cache: ordinary, request: write{kind: "Machine", object: machine(bySet)}, want: []string{addsTeam}, outcome: "injected"},
		{name: "a Machine without an owner inherits nothing", cache: ordinary, request: write{kind: "Machine", object: machine("labels: {mine: '1'}")}, outcome: "unchanged"},
		{name: "an update that takes a label away gets it back, and is told", cache: ordinary, request: write{kind: "Machine", object: machine(bySet + ", " + ownsTeam), old: machine(bySet + ", labels: {team: a}, " + ownsTeam)}, want: []string{addsTeam}, warnings: []string{`heirloom: label "team" of Machine ns/x was kept: it is inherited; to change it, edit MachineDeployment ns/md (spec.template.metadata.labels)`}, outcome: "injected"},
		{name: "an update of a Machine that never had the label is not told", cache: ordinary, request: write{kind: "Machine", object: machine(bySet), old: machine(bySet)}, want: []string{addsTeam}, outcome: "injected"},
		{name: "a Machine of a topology is to be changed in its Cluster", cache: ordinary, request: write{kind: "Machine", object: machine(bySet + ", labels: {topology.cluster.x-k8s.io/owned: ''}"), old: machine(bySet + ", labels: {topology.cluster.x-k8s.io/owned: '', team: a}")}, want: []string{`{"op":"add","path":"/metadata/labels","value":{"team":"a","topology.cluster.x-k8s.io/owned":""}}`}, warnings: []string{"edit Cluster ns/c (spec.topology)"}, outcome: "injected"},
		{name: "a taint that may not be inherited is left out, and said so", cache: ordinary.with(func(f *fleet) {
			f.sets = map[string]string{"ns/ms": "{spec: {clusterName: c, template: {spec: {taints: [{key: node.kubernetes.io/x, effect: NoSchedule, propagation: Always}]}}}}"}
		}), request: write{kind: "Machine", object: machine(bySet)}, warnings: []string{`heirloom: not inherited: MachineSet ns/ms (spec.template.spec.taints): taint "node.kubernetes.io/x:NoSchedule"`}, outcome: "unchanged"},

		{name: "a paused Machine is left alone", cache: ordinary, request: write{kind: "Machine", object: machine(bySet + ", annotations: {cluster.x-k8s.io/paused: ''}")}, outcome: "unmatched"},
		{name: "a Machine that is being deleted is left alone", cache: ordinary, request: write{kind: "Machine", object: machine(bySet + deleted), old: machine(bySet + deleted)}, outcome: "unmatched"},
		{name: "a Machine that is created by apply with that field inherits", cache: ordinary, request: write{kind: "Machine", object: machine(bySet + deleted)}, want: []string{addsTeam}, outcome: "injected"},

		{name: "an owner that is not cached is asked for", cache: fleet{}, live: &ordinary, request: write{kind: "Machine", object: machine(bySet)}, want: []string{addsTeam}, outcome: "injected"},
		{name: "an owner that nobody finds takes nothing away", cache: fleet{}, live: &nothing, request: write{kind: "Machine", object: machine(bySet + ", labels: {team: a}, " + ownsTeam), old: inherits}, outcome: "unmatched"},
		{name: "an owner that cannot be asked for lets the Machine pass", cache: fleet{}, live: &broken, request: write{kind: "Machine", object: machine(bySet)}, warnings: []string{"the object inherited nothing with this write"}, outcome: "failed"},
		{name: "managed fields of ours that cannot be read let the Machine pass", cache: ordinary, request: write{kind: "Machine", object: machine(bySet + ", managedFields: [{manager: heirloom, operation: Apply, fieldsV1: {'k:rubbish': {}}}]")}, warnings: []string{`metadata.managedFields of manager "heirloom"`}, outcome: "failed"},
	} {
		t.Run(tc.name, tc.run)
	}
}
