// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// nodeCase is a Machine and a Node that has been synced before, and what becomes of the Node. Machines are workers.
type nodeCase struct {
	name    string
	policy  inherit.Policy
	machine content
	node    content
	want    content
	problem string
}

func (tc nodeCase) run(t *testing.T) {
	t.Helper()
	Expect := NewWithT(t).Expect
	m, node := tc.machine.machine(), tc.node.initialized()
	got, err := withProblems(tc.policy.Node(inherit.SourceOfMachine(m), node, inherit.Privileged))
	expectProblem(t, err, tc.problem)
	Expect(describe(got)).To(Equal(describe(tc.want.initialized())))
	Expect(m).To(Equal(tc.machine.machine()), "the input is not mutated")
	Expect(node).To(Equal(tc.node.initialized()), "the input is not mutated")
	again, err := withProblems(tc.policy.Node(inherit.SourceOfMachine(m), got, inherit.Privileged))
	expectProblem(t, err, tc.problem)
	Expect(describe(again)).To(Equal(describe(got)), "a second time changes nothing")
	Expect(again.Equal(got)).To(BeTrue())
}

// TestNodeLabels is rule 11.
func TestNodeLabels(t *testing.T) {
	team := inherit.Policy{AdditionalLabels: regexes("^team$", `^cost\.example\.com/`)}
	everything := inherit.Policy{AdditionalLabels: regexes(".*")}
	for _, tc := range []nodeCase{
		{name: "a role is inherited", machine: content{labels: "node-role.kubernetes.io/gpu="}, want: content{labels: "node-role.kubernetes.io/gpu=", annotations: "capi/labels=node-role.kubernetes.io/gpu"}},
		{name: "a restricted label is inherited", machine: content{labels: "node-restriction.kubernetes.io/a=1"}, want: content{labels: "node-restriction.kubernetes.io/a=1", annotations: "capi/labels=node-restriction.kubernetes.io/a"}},
		{name: "so is one of a subdomain", machine: content{labels: "x.node-restriction.kubernetes.io/a=1"}, want: content{labels: "x.node-restriction.kubernetes.io/a=1", annotations: "capi/labels=x.node-restriction.kubernetes.io/a"}},
		{name: "a managed label is inherited", machine: content{labels: "node.cluster.x-k8s.io/a=1"}, want: content{labels: "node.cluster.x-k8s.io/a=1", annotations: "capi/labels=node.cluster.x-k8s.io/a"}},
		{name: "so is one of its subdomains", machine: content{labels: "x.y.node.cluster.x-k8s.io/a=1"}, want: content{labels: "x.y.node.cluster.x-k8s.io/a=1", annotations: "capi/labels=x.y.node.cluster.x-k8s.io/a"}},
		{name: "a subdomain of the role prefix is another domain", machine: content{labels: "x.node-role.kubernetes.io/a=1"}},
		{name: "a domain that only ends alike is another domain", machine: content{labels: "xnode-restriction.kubernetes.io/a=1,xnode.cluster.x-k8s.io/b=1"}},
		{name: "a domain that only begins alike is another domain", machine: content{labels: "node-role.kubernetes.io.example.com/a=1,node.cluster.x-k8s.io.evil/b=1"}},
		{name: "other labels stay on the Machine", machine: content{labels: "team=a,topology.kubernetes.io/zone=z,cluster.x-k8s.io/cluster-name=c"}},
		{name: "keys are recorded in order", machine: content{labels: "node.cluster.x-k8s.io/b=,node-role.kubernetes.io/c=,node.cluster.x-k8s.io/a="}, want: content{labels: "node.cluster.x-k8s.io/b=,node-role.kubernetes.io/c=,node.cluster.x-k8s.io/a=", annotations: "capi/labels=node-role.kubernetes.io/c,node.cluster.x-k8s.io/a,node.cluster.x-k8s.io/b"}},

		{name: "a label that already is right is recorded", machine: content{labels: "node.cluster.x-k8s.io/a=1"}, node: content{labels: "node.cluster.x-k8s.io/a=1"}, want: content{labels: "node.cluster.x-k8s.io/a=1", annotations: "capi/labels=node.cluster.x-k8s.io/a"}},
		{name: "another value is replaced", machine: content{labels: "node.cluster.x-k8s.io/a=1"}, node: content{labels: "node.cluster.x-k8s.io/a=2"}, want: content{labels: "node.cluster.x-k8s.io/a=1", annotations: "capi/labels=node.cluster.x-k8s.io/a"}},
		{name: "a label removed by somebody comes back", machine: content{labels: "node.cluster.x-k8s.io/a=1"}, node: content{annotations: "capi/labels=node.cluster.x-k8s.io/a"}, want: content{labels: "node.cluster.x-k8s.io/a=1", annotations: "capi/labels=node.cluster.x-k8s.io/a"}},
		{name: "a label no longer declared goes, its record stays empty", node: content{labels: "node.cluster.x-k8s.io/a=1,mine=1", annotations: "capi/labels=node.cluster.x-k8s.io/a"}, want: content{labels: "mine=1", annotations: "capi/labels="}},
		{name: "a label that was never recorded is somebody else's", node: content{labels: "node.cluster.x-k8s.io/a=1"}, want: content{labels: "node.cluster.x-k8s.io/a=1"}},

		{name: "an operator's regex brings further labels, recorded apart", policy: team, machine: content{labels: "team=a,cost.example.com/center=7,x=y"}, want: content{labels: "team=a,cost.example.com/center=7", annotations: "own/labels=cost.example.com/center,team"}},
		{name: "a regex is not anchored", policy: inherit.Policy{AdditionalLabels: regexes("am")}, machine: content{labels: "team=a"}, want: content{labels: "team=a", annotations: "own/labels=team"}},
		{name: "what the rules bring is not recorded as the regex's", policy: everything, machine: content{labels: "node.cluster.x-k8s.io/a=1"}, want: content{labels: "node.cluster.x-k8s.io/a=1", annotations: "capi/labels=node.cluster.x-k8s.io/a"}},
		{name: "a regex does not reach bookkeeping", policy: everything, machine: content{labels: "cluster.x-k8s.io/cluster-name=c,topology.cluster.x-k8s.io/owned=,heirloom.dev/ignore=,x.heirloom.dev/a="}},
		{name: "a label of a regex no longer declared goes, and its record", policy: team, node: content{labels: "team=a", annotations: "own/labels=team"}},
		{name: "a label whose regex the operator took away goes", machine: content{labels: "team=a"}, node: content{labels: "team=a", annotations: "own/labels=team"}},
		{name: "a label whose regex the operator took away goes, also when the Machine lost it", node: content{labels: "team=a", annotations: "own/labels=team"}},

		{name: "a label of Cluster API's own that it records stays", node: content{labels: "cluster.x-k8s.io/interruptible=", annotations: "capi/labels=cluster.x-k8s.io/interruptible"}, want: content{labels: "cluster.x-k8s.io/interruptible=", annotations: "capi/labels=cluster.x-k8s.io/interruptible"}},
		{name: "it stays beside ours", machine: content{labels: "node.cluster.x-k8s.io/a=1"}, node: content{labels: "cluster.x-k8s.io/interruptible=", annotations: "capi/labels=cluster.x-k8s.io/interruptible"}, want: content{labels: "cluster.x-k8s.io/interruptible=,node.cluster.x-k8s.io/a=1", annotations: "capi/labels=cluster.x-k8s.io/interruptible,node.cluster.x-k8s.io/a"}},
		{name: "its record goes with it", node: content{annotations: "capi/labels=cluster.x-k8s.io/interruptible"}, want: content{annotations: "capi/labels="}},
		{name: "a label that Cluster API brings by a regex of its own too goes cleanly", policy: team, node: content{labels: "team=a", annotations: "capi/labels=team; own/labels=team"}, want: content{annotations: "capi/labels="}},

		{name: "a record with blanks and gaps is read", node: content{labels: "node.cluster.x-k8s.io/a=1", annotations: "capi/labels=, node.cluster.x-k8s.io/a ,,"}, want: content{annotations: "capi/labels="}},
		{name: "a record out of order is put in order", machine: content{labels: "node.cluster.x-k8s.io/a=1,node.cluster.x-k8s.io/b=1"}, node: content{annotations: "capi/labels=node.cluster.x-k8s.io/b,node.cluster.x-k8s.io/a,node.cluster.x-k8s.io/b"}, want: content{labels: "node.cluster.x-k8s.io/a=1,node.cluster.x-k8s.io/b=1", annotations: "capi/labels=node.cluster.x-k8s.io/a,node.cluster.x-k8s.io/b"}},
		{name: "a record that is rubbish does no harm", node: content{labels: "mine=1", annotations: "capi/labels={\"a\":1},; own/labels=\x00"}, want: content{labels: "mine=1", annotations: "capi/labels="}},
	} {
		t.Run(tc.name, tc.run)
	}
}

// TestNodeAnnotations is rule 12.
func TestNodeAnnotations(t *testing.T) {
	notes := inherit.Policy{AdditionalAnnotations: regexes("^note")}
	everything := inherit.Policy{AdditionalAnnotations: regexes(".*")}
	for _, tc := range []nodeCase{
		{name: "a managed annotation is inherited", machine: content{annotations: "node.cluster.x-k8s.io/a=1"}, want: content{annotations: "node.cluster.x-k8s.io/a=1; capi/annotations=node.cluster.x-k8s.io/a"}},
		{name: "so is one of a subdomain", machine: content{annotations: "x.node.cluster.x-k8s.io/a=1"}, want: content{annotations: "x.node.cluster.x-k8s.io/a=1; capi/annotations=x.node.cluster.x-k8s.io/a"}},
		{name: "other annotations stay on the Machine", machine: content{annotations: "note=x; node-role.kubernetes.io/a=1; cluster.x-k8s.io/remediate-machine="}},
		{name: "another value is replaced", machine: content{annotations: "node.cluster.x-k8s.io/a=1"}, node: content{annotations: "node.cluster.x-k8s.io/a=2"}, want: content{annotations: "node.cluster.x-k8s.io/a=1; capi/annotations=node.cluster.x-k8s.io/a"}},
		{name: "an annotation no longer declared goes, its record stays empty", node: content{annotations: "node.cluster.x-k8s.io/a=1; capi/annotations=node.cluster.x-k8s.io/a; mine=1"}, want: content{annotations: "capi/annotations=; mine=1"}},
		{name: "an annotation that was never recorded is somebody else's", node: content{annotations: "node.cluster.x-k8s.io/a=1"}, want: content{annotations: "node.cluster.x-k8s.io/a=1"}},
		{name: "an annotation that Cluster API records for itself stays", node: content{annotations: "x=1; capi/annotations=x"}, want: content{annotations: "x=1; capi/annotations=x"}},

		{name: "an operator's regex brings further annotations, recorded apart", policy: notes, machine: content{annotations: "note=x; other=y"}, want: content{annotations: "note=x; own/annotations=note"}},
		{name: "an annotation of a regex no longer declared goes, and its record", policy: notes, node: content{annotations: "note=x; own/annotations=note"}},
		{name: "an annotation whose regex the operator took away goes", machine: content{annotations: "note=x"}, node: content{annotations: "note=x; own/annotations=note"}},
		{name: "a regex does not reach bookkeeping", policy: everything, machine: content{annotations: "cluster.x-k8s.io/paused-by=c; own/labels=a; capi/labels=b; taints.heirloom.dev/always=; heirloom.dev/uninitialized=added"}},
		{name: "a regex for labels brings no annotations", policy: inherit.Policy{AdditionalLabels: regexes(".*")}, machine: content{annotations: "note=x"}},
	} {
		t.Run(tc.name, tc.run)
	}
}
