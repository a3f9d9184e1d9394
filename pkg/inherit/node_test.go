// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// nodeCase is a worker Machine, a Node that was synced before, and the expected Node.
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
	got, err := withProblems(planned(tc.policy, inherit.SourceOfMachine(m), node, privileged))
	expectProblem(t, err, tc.problem)
	Expect(describe(got)).To(Equal(describe(tc.want.initialized())))
}

// TestNodeLabels checks rule 11.
func TestNodeLabels(t *testing.T) {
	team := inherit.Policy{AdditionalLabels: regexes("^team$", `^cost\.example\.com/`)}
	everything := inherit.Policy{AdditionalLabels: regexes(".*")}
	for _, tc := range []nodeCase{
		{name: "a role is inherited", machine: content{labels: "node-role.kubernetes.io/gpu="}, want: content{labels: "node-role.kubernetes.io/gpu=", annotations: "capi/labels=node-role.kubernetes.io/gpu"}},
		{name: "a restricted label is inherited", machine: content{labels: "node-restriction.kubernetes.io/a=1"}, want: content{labels: "node-restriction.kubernetes.io/a=1", annotations: "capi/labels=node-restriction.kubernetes.io/a"}},
		{name: "so is one of a subdomain", machine: content{labels: "x.node-restriction.kubernetes.io/a=1"}, want: content{labels: "x.node-restriction.kubernetes.io/a=1", annotations: "capi/labels=x.node-restriction.kubernetes.io/a"}},
		{name: "a managed label is inherited", machine: content{labels: "node.cluster.x-k8s.io/a=1"}, want: content{labels: "node.cluster.x-k8s.io/a=1", annotations: "capi/labels=node.cluster.x-k8s.io/a"}},
		{name: "a subdomain of the role prefix is another domain", machine: content{labels: "x.node-role.kubernetes.io/a=1"}},
		{name: "a domain that only ends alike is another domain", machine: content{labels: "xnode-restriction.kubernetes.io/a=1,xnode.cluster.x-k8s.io/b=1"}},
		{name: "a domain that only begins alike is another domain", machine: content{labels: "node-role.kubernetes.io.example.com/a=1,node.cluster.x-k8s.io.evil/b=1"}},
		{name: "other labels stay on the Machine", machine: content{labels: "team=a,topology.kubernetes.io/zone=z,cluster.x-k8s.io/cluster-name=c"}},

		{name: "another value is replaced", machine: content{labels: "node.cluster.x-k8s.io/a=1"}, node: content{labels: "node.cluster.x-k8s.io/a=2"}, want: content{labels: "node.cluster.x-k8s.io/a=1", annotations: "capi/labels=node.cluster.x-k8s.io/a"}},
		{name: "a label no longer declared goes, its record stays empty", node: content{labels: "node.cluster.x-k8s.io/a=1,mine=1", annotations: "capi/labels=node.cluster.x-k8s.io/a"}, want: content{labels: "mine=1", annotations: "capi/labels="}},
		{name: "a label that was never recorded is somebody else's", node: content{labels: "node.cluster.x-k8s.io/a=1"}, want: content{labels: "node.cluster.x-k8s.io/a=1"}},

		{name: "an operator's regex brings further labels, recorded apart", policy: team, machine: content{labels: "team=a,cost.example.com/center=7,x=y"}, want: content{labels: "team=a,cost.example.com/center=7", annotations: "own/labels=cost.example.com/center,team"}},
		{name: "a regex does not reach bookkeeping", policy: everything, machine: content{labels: "cluster.x-k8s.io/cluster-name=c,topology.cluster.x-k8s.io/owned=,heirloom.dev/ignore=,x.heirloom.dev/a="}},
		{name: "a label whose regex the operator took away goes", machine: content{labels: "team=a"}, node: content{labels: "team=a", annotations: "own/labels=team"}},

		{name: "a label of Cluster API's own that it records stays", node: content{labels: "cluster.x-k8s.io/interruptible=", annotations: "capi/labels=cluster.x-k8s.io/interruptible"}, want: content{labels: "cluster.x-k8s.io/interruptible=", annotations: "capi/labels=cluster.x-k8s.io/interruptible"}},

		{name: "a record with blanks and gaps is read", node: content{labels: "node.cluster.x-k8s.io/a=1", annotations: "capi/labels=, node.cluster.x-k8s.io/a ,,"}, want: content{annotations: "capi/labels="}},
	} {
		t.Run(tc.name, tc.run)
	}
}

// TestNodeAnnotations checks rule 12.
func TestNodeAnnotations(t *testing.T) {
	notes := inherit.Policy{AdditionalAnnotations: regexes("^note")}
	everything := inherit.Policy{AdditionalAnnotations: regexes(".*")}
	for _, tc := range []nodeCase{
		{name: "a managed annotation is inherited", machine: content{annotations: "node.cluster.x-k8s.io/a=1"}, want: content{annotations: "node.cluster.x-k8s.io/a=1; capi/annotations=node.cluster.x-k8s.io/a"}},
		{name: "other annotations stay on the Machine", machine: content{annotations: "note=x; node-role.kubernetes.io/a=1; cluster.x-k8s.io/remediate-machine="}},
		{name: "an annotation no longer declared goes, its record stays empty", node: content{annotations: "node.cluster.x-k8s.io/a=1; capi/annotations=node.cluster.x-k8s.io/a; mine=1"}, want: content{annotations: "capi/annotations=; mine=1"}},
		{name: "an annotation that was never recorded is somebody else's", node: content{annotations: "node.cluster.x-k8s.io/a=1"}, want: content{annotations: "node.cluster.x-k8s.io/a=1"}},
		{name: "an annotation that Cluster API records for itself stays", node: content{annotations: "x=1; capi/annotations=x"}, want: content{annotations: "x=1; capi/annotations=x"}},

		{name: "an operator's regex brings further annotations, recorded apart", policy: notes, machine: content{annotations: "note=x; other=y"}, want: content{annotations: "note=x; own/annotations=note"}},
		{name: "a regex does not reach bookkeeping", policy: everything, machine: content{annotations: "cluster.x-k8s.io/paused-by=c; own/labels=a; capi/labels=b; taints.heirloom.dev/always=; heirloom.dev/uninitialized=added"}},
		{name: "a regex for labels brings no annotations", policy: inherit.Policy{AdditionalLabels: regexes(".*")}, machine: content{annotations: "note=x"}},
	} {
		t.Run(tc.name, tc.run)
	}
}

// TestNodeTaints checks rule 13 on a Node that was synced before.
func TestNodeTaints(t *testing.T) {
	const always, initialize = "taints.heirloom.dev/always=", "taints.heirloom.dev/initialize="
	enabled := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}
	disabled := inherit.Policy{ClusterAPITaints: inherit.PropagationDisabled}
	for _, tc := range []nodeCase{
		{name: "a typed Always taint is added and recorded", machine: content{taints: "gpu=1:NoSchedule"}, node: content{taints: "z:NoSchedule"}, want: content{taints: "z:NoSchedule,gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}},
		{name: "it is recorded with its value where Cluster API does not read it", policy: disabled, machine: content{taints: "gpu=1:NoSchedule,b:NoExecute"}, want: content{taints: "b:NoExecute,gpu=1:NoSchedule", annotations: "capi/taints=b:NoExecute,gpu=1:NoSchedule"}},
		{name: "a record in Cluster API's form stays if it says the same, wherever Cluster API is", policy: disabled, machine: content{taints: "gpu=1:NoSchedule"}, node: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}},
		{name: "a record with values becomes Cluster API's form where Cluster API reads it", policy: enabled, machine: content{taints: "gpu=1:NoSchedule"}, node: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu=1:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}},
		{name: "an annotated Always taint is added and recorded apart", machine: content{annotations: always + "gpu=1:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "own/taints=gpu=1:NoSchedule"}},
		{name: "typed and annotated taints are recorded each in its place", machine: content{taints: "a=1:NoSchedule", annotations: always + "b=2:NoSchedule"}, want: content{taints: "a=1:NoSchedule,b=2:NoSchedule", annotations: "capi/taints=a:NoSchedule; own/taints=b=2:NoSchedule"}},
		{name: "the typed taint wins on the same key and effect", machine: content{taints: "gpu=typed:NoSchedule", annotations: always + "gpu=annotated:NoSchedule"}, want: content{taints: "gpu=typed:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}},
		{name: "a typed Initialize taint wins over an annotated Always one", machine: content{taints: "gpu=typed:NoSchedule@OnInitialization", annotations: always + "gpu=annotated:NoSchedule"}},

		{name: "with another value since, it stays", policy: disabled, node: content{taints: "gpu=2:NoSchedule", annotations: "capi/taints=gpu=1:NoSchedule"}, want: content{taints: "gpu=2:NoSchedule", annotations: "capi/taints="}},
		{name: "a taint that becomes typed stays in our record until Cluster API knows of it", policy: enabled, machine: content{taints: "gpu=1:NoSchedule", annotations: always + "gpu=1:NoSchedule"}, node: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=b:NoSchedule; own/taints=gpu=1:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=; own/taints=gpu=1:NoSchedule"}},
		{name: "once Cluster API lists it, it is recorded as typed", policy: enabled, machine: content{taints: "gpu=1:NoSchedule", annotations: always + "gpu=1:NoSchedule"}, node: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule; own/taints=gpu=1:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}},
		{name: "a taint that becomes typed is recorded as typed where Cluster API reads nothing", policy: disabled, machine: content{taints: "gpu=1:NoSchedule", annotations: always + "gpu=1:NoSchedule"}, node: content{taints: "gpu=1:NoSchedule", annotations: "own/taints=gpu=1:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu=1:NoSchedule"}},
		{name: "a taint that is annotated only from now on stays", machine: content{annotations: always + "gpu=1:NoSchedule"}, node: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=; own/taints=gpu=1:NoSchedule"}},

		{name: "Always to Initialize keeps the taint and drops the record, typed", machine: content{taints: "gpu:NoSchedule@OnInitialization"}, node: content{taints: "gpu:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}, want: content{taints: "gpu:NoSchedule", annotations: "capi/taints="}},

		{name: "a broken record is passed over and put right", node: content{taints: "gpu:NoSchedule,z:NoSchedule", annotations: "capi/taints=rubbish,gpu:NoSchedule,:,a:b:c"}, want: content{taints: "z:NoSchedule", annotations: "capi/taints="}},
		{name: "a reserved taint never reaches the Node, and that is said", machine: content{taints: "node.kubernetes.io/x:NoSchedule,gpu:NoSchedule"}, want: content{taints: "gpu:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}, problem: "node.kubernetes.io/x:NoSchedule"},
		{name: "the control plane's taint never reaches a worker", machine: content{annotations: always + "node-role.kubernetes.io/control-plane:NoSchedule"}, problem: "reserved for control plane Machines"},
	} {
		t.Run(tc.name, tc.run)
	}
}

const (
	uninitialized = "node.cluster.x-k8s.io/uninitialized:NoSchedule"
	guarded       = "heirloom.dev/uninitialized=added"
)

// A kubelet's CREATE gets the entries that NodeRestriction accepts, and no others. The Machines belong to a control plane, so that the guard
// taint, tested below, is not added.
func TestKubeletRegisters(t *testing.T) {
	for _, tc := range []struct {
		name          string
		policy        inherit.Policy
		machine, node content
		want          content
	}{
		{name: "managed labels come at once", machine: content{labels: "node.cluster.x-k8s.io/a=1,x.node.cluster.x-k8s.io/b=2"}, want: content{labels: "node.cluster.x-k8s.io/a=1,x.node.cluster.x-k8s.io/b=2", annotations: "capi/labels=node.cluster.x-k8s.io/a,x.node.cluster.x-k8s.io/b; capi/taints="}},
		{name: "a role must wait, and is not recorded", machine: content{labels: "node-role.kubernetes.io/gpu="}, want: content{annotations: "capi/taints="}},
		{name: "unrestricted labels of a regex come at once", policy: inherit.Policy{AdditionalLabels: regexes(".*")}, machine: content{labels: "team=a,mykubernetes.io/b=1,x-k8s.io/c=1"}, want: content{labels: "team=a,mykubernetes.io/b=1,x-k8s.io/c=1", annotations: "own/labels=mykubernetes.io/b,team,x-k8s.io/c; capi/taints="}},
		{name: "other labels of kubernetes.io and k8s.io must wait", policy: inherit.Policy{AdditionalLabels: regexes(".*")}, machine: content{labels: "topology.kubernetes.io/zone=z,kubernetes.io/os=linux,x.k8s.io/a=1,k8s.io/b=1"}, want: content{annotations: "capi/taints="}},
		{name: "what the kubelet brings itself stays as it is", policy: inherit.Policy{AdditionalLabels: regexes(".*")}, machine: content{labels: "kubernetes.io/os=plan9"}, node: content{labels: "kubernetes.io/os=linux,mine=1"}, want: content{labels: "kubernetes.io/os=linux,mine=1", annotations: "capi/taints="}},
		{name: "Always and Initialize taints come at once", machine: content{taints: "a=1:NoSchedule,b:NoExecute@OnInitialization", annotations: "taints.heirloom.dev/always=c:NoSchedule"}, want: content{taints: "a=1:NoSchedule,b:NoExecute,c:NoSchedule", annotations: "capi/taints=a:NoSchedule; own/taints=c:NoSchedule"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			node := tc.node.node()
			m := tc.machine.controller()
			got := whole(planned(tc.policy, inherit.SourceOfMachine(m), node, kubelet))
			Expect(describe(got)).To(Equal(describe(tc.want.node())))

			later := whole(planned(tc.policy, inherit.SourceOfMachine(m), got, privileged))
			for key, value := range tc.machine.machine().Labels {
				Expect(later.Labels).To(HaveKeyWithValue(key, value), "waiting entries come with the first privileged write")
			}
		})
	}
}

func named(keys []inherit.NodeKey) []string {
	var names []string
	for _, key := range keys {
		names = append(names, key.String())
	}
	return names
}

// While its Machine has not inherited yet, a Node already gets the entries that the Machine lacks, listed in Heirloom's annotations. The
// Machine's current entries apply until they change there. Once the Machine has inherited, the entries in Heirloom's lists stay there,
// since moving them would be a second write.
func TestNodesInheritAheadOfTheirMachine(t *testing.T) {
	const label, note = "node.cluster.x-k8s.io/a", "node.cluster.x-k8s.io/note"
	gate := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}
	for _, tc := range []struct {
		name                   string
		policy                 inherit.Policy
		template, machine      content
		node, meanwhile, after content
	}{
		{
			name: "a label", template: content{labels: label + "=1"},
			meanwhile: content{labels: label + "=1", annotations: "own/labels=" + label},
			after:     content{labels: label + "=1", annotations: "own/labels=" + label},
		},
		{
			name: "a label that Cluster API's list still has", template: content{labels: label + "=1"},
			node:      content{labels: label + "=1", annotations: "capi/labels=" + label},
			meanwhile: content{labels: label + "=1", annotations: "capi/labels=; own/labels=" + label},
			after:     content{labels: label + "=1", annotations: "own/labels=" + label},
		},
		{
			name: "another value", template: content{labels: label + "=2"}, machine: content{labels: label + "=1"},
			meanwhile: content{labels: label + "=1", annotations: "capi/labels=" + label},
			after:     content{labels: label + "=2", annotations: "capi/labels=" + label},
		},
		{
			name: "an annotation", template: content{annotations: note + "=1"},
			meanwhile: content{annotations: note + "=1; own/annotations=" + note},
			after:     content{annotations: note + "=1; own/annotations=" + note},
		},
		{
			name: "a typed taint", policy: gate, template: content{taints: "gpu:NoSchedule"},
			meanwhile: content{taints: "gpu:NoSchedule", annotations: "own/taints=gpu:NoSchedule"},
			after:     content{taints: "gpu:NoSchedule", annotations: "own/taints=gpu:NoSchedule"}, // until Cluster API lists it
		},
		{
			name: "another value of a typed taint", policy: gate,
			template: content{taints: "gpu=new:NoSchedule"}, machine: content{taints: "gpu=old:NoSchedule"},
			meanwhile: content{taints: "gpu=old:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"},
			after:     content{taints: "gpu=new:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"},
		},
		{
			name: "another value of an annotated taint", policy: inherit.Policy{ClusterAPITaints: inherit.PropagationDisabled},
			template:  content{annotations: "taints.heirloom.dev/always=gpu=new:NoSchedule"},
			machine:   content{annotations: "taints.heirloom.dev/always=gpu=old:NoSchedule"},
			meanwhile: content{taints: "gpu=new:NoSchedule", annotations: "own/taints=gpu=new:NoSchedule"},
			after:     content{taints: "gpu=new:NoSchedule", annotations: "own/taints=gpu=new:NoSchedule"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			template := inherit.TemplateOfMachineSet(&clusterv1.MachineSet{Spec: clusterv1.MachineSetSpec{Template: tc.template.template()}})
			m := tc.machine.machine()
			sync := func(m *clusterv1.Machine, node inherit.NodeState) inherit.NodeState {
				source := inherit.SourceOfMachine(tc.policy.EffectiveMachine(template, m)).AheadOf(m)
				return whole(planned(tc.policy, source, node, privileged))
			}
			node := sync(m, tc.node.initialized())
			Expect(withoutEmpty(node)).To(Equal(withoutEmpty(tc.meanwhile.initialized())), "before the Machine inherits")

			inherited := m.DeepCopy()
			inherited.Labels, inherited.Annotations = labels(tc.template.labels), annotations(tc.template.annotations)
			inherited.Spec.Taints = declared(tc.template.taints)
			Expect(withoutEmpty(sync(inherited, node))).To(Equal(withoutEmpty(tc.after.initialized())), "after")
		})
	}
}

// withoutEmpty describes a Node without empty tracking annotations.
func withoutEmpty(node inherit.NodeState) []string {
	node.Annotations = maps.Clone(node.Annotations)
	maps.DeleteFunc(node.Annotations, func(_, value string) bool { return value == "" })
	return describe(node)
}

// For every declaration of its Machine, a Node can register, with the taints that keep workload away.
func TestNodesStayValid(t *testing.T) {
	const label, annotation = "node.cluster.x-k8s.io/a", "node.cluster.x-k8s.io/b"
	many, long := map[string]string{}, strings.Repeat("x", apivalidation.TotalAnnotationSizeLimitB-1000)
	for i := range 8_000 {
		many[fmt.Sprintf("%s-%d.%s", label, i, strings.Repeat("x", 30))] = ""
	}
	full := map[string]string{"kept": strings.Repeat("x", apivalidation.TotalAnnotationSizeLimitB-len("kept"))}
	for _, tc := range []struct {
		name                string
		labels, annotations map[string]string
		node                map[string]string
		says                string
		labeled, annotated  bool
		tainted             bool
	}{
		{name: "what fits", labels: map[string]string{label: "1"}, annotations: map[string]string{annotation: "1"}, labeled: true, annotated: true, tainted: true},
		{name: "a long annotation that fits", annotations: map[string]string{annotation: long}, annotated: true, tainted: true},
		{name: "a long annotation that does not fit beside the Node's own", annotations: map[string]string{annotation: long}, node: map[string]string{"own": long[:2000]}, says: "a Node has no room for all of them", tainted: true},
		{name: "labels for which there is room, but not for their record", labels: many, says: "a Node has no room for all of them", tainted: true},
		{name: "a label that no API server takes", labels: map[string]string{label: "not valid"}, annotations: map[string]string{annotation: "1"}, says: "no Node can carry it", annotated: true, tainted: true},
		{name: "an annotation that no API server takes", labels: map[string]string{label: "1"}, annotations: map[string]string{"node.cluster.x-k8s.io/not valid": "1"}, says: "no Node can carry it", labeled: true, tainted: true},
		{name: "a Node that has no room even for the record of its taints", labels: map[string]string{label: "1"}, node: full, says: "a Node has no room for all of them", tainted: true},
	} {
		for name, turn := range map[string]inherit.Turn{"kubelet": kubelet, "others": privileged} {
			t.Run(tc.name+"/"+name, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				m := content{taints: "gpu=1:NoSchedule"}.machine()
				m.Labels, m.Annotations = tc.labels, tc.annotations
				current := inherit.NodeState{Annotations: tc.node, Labels: map[string]string{"mine": "1"}}
				got, err := withProblems(planned(inherit.Policy{}, inherit.SourceOfMachine(m), current, turn))
				if tc.says == "" {
					Expect(err).NotTo(HaveOccurred())
				} else {
					Expect(err).To(MatchError(ContainSubstring(tc.says)))
				}
				Expect(apivalidation.ValidateAnnotations(got.Annotations, nil)).To(BeEmpty())
				Expect(got.Labels).To(HaveKeyWithValue("mine", "1"))
				Expect(len(unrecorded(got).Labels) > 1).To(Equal(tc.labeled))
				_, annotated := got.Annotations[annotation]
				Expect(annotated).To(Equal(tc.annotated))
				Expect(len(got.Taints) > 0).To(Equal(tc.tainted))
				for key, value := range tc.node {
					Expect(got.Annotations).To(HaveKeyWithValue(key, value))
				}
				again, _ := planned(inherit.Policy{}, inherit.SourceOfMachine(m), got, privileged)
				once, _ := planned(inherit.Policy{}, inherit.SourceOfMachine(m), again, privileged)
				Expect(once.Equal(again)).To(BeTrue(), "a further write changes nothing")
			})
		}
	}
}

// Some annotations of Nodes are read by API servers. No Node inherits them, even if an operator selects them, and a Node that has
// inherited them loses them.
func TestNodesInheritNoAPIServerAnnotations(t *testing.T) {
	Expect := NewWithT(t).Expect
	policy := inherit.Policy{AdditionalAnnotations: []*regexp.Regexp{regexp.MustCompile("")}}
	m := content{annotations: "a=1"}.machine()
	m.Annotations["scheduler.alpha.kubernetes.io/taints"], m.Annotations["scheduler.alpha.kubernetes.io/preferAvoidPods"] = "x", "x"
	for _, turn := range []inherit.Turn{kubelet, privileged} {
		got, dropped := planned(policy, inherit.SourceOfMachine(m), inherit.NodeState{}, turn)
		Expect(got.Annotations).To(HaveKey("a"))
		Expect(got.Annotations).NotTo(HaveKey(HavePrefix("scheduler.alpha")))
		Expect(dropped).To(ContainElements(
			HaveField("Entry.Name", "scheduler.alpha.kubernetes.io/taints"), HaveField("Why", inherit.DropNever)))
	}
}
