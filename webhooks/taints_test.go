// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

func TestTaints(t *testing.T) {
	const reserved = "[{key: node.kubernetes.io/x, effect: NoSchedule, propagation: Always}]"
	for _, tc := range []struct {
		name    string
		request write
		// causes are the field paths of a refusal. Without causes, the object is allowed.
		causes []string
	}{
		{name: "good taints are allowed", request: write{kind: "Machine", object: "{spec: {taints: [{key: gpu, effect: NoSchedule, propagation: Always}]}}"}},
		{name: "a reserved taint is refused", request: write{kind: "Machine", object: "{spec: {taints: " + reserved + "}}"}, causes: []string{"spec.taints[0].key"}},
		{name: "every fault is a cause", request: write{kind: "MachineDeployment", object: "{metadata: {annotations: {taints.heirloom.dev/always: typo}}, spec: {template: {spec: {taints: [{key: a, value: b/c, effect: Never, propagation: Once}]}}}}"}, causes: []string{
			"metadata.annotations[taints.heirloom.dev/always]", "spec.template.spec.taints[0].value", "spec.template.spec.taints[0].effect", "spec.template.spec.taints[0].propagation",
		}},
		{name: "an update that leaves a reserved taint alone is allowed", request: write{kind: "Machine", object: "{spec: {taints: " + reserved + "}}", old: "{spec: {taints: " + reserved + "}}"}},
		{name: "an update that brings one in is refused", request: write{kind: "Machine", object: "{spec: {taints: " + reserved + "}}", old: "{spec: {}}"}, causes: []string{"spec.taints[0].key"}},
		{name: "a control plane of any provider may carry its own taint", request: write{kind: "AcmeControlPlane", object: "{spec: {machineTemplate: {metadata: {annotations: {taints.heirloom.dev/always: 'node-role.kubernetes.io/control-plane:NoSchedule'}}}}}"}},
		{name: "a MachineDeployment may not", request: write{kind: "MachineDeployment", object: "{spec: {template: {metadata: {annotations: {taints.heirloom.dev/always: 'node-role.kubernetes.io/control-plane:NoSchedule'}}}}}"}, causes: []string{"spec.template.metadata.annotations[taints.heirloom.dev/always]"}},
		{name: "a label in Heirloom's domain is refused on a Machine", request: write{kind: "Machine", object: "{metadata: {labels: {heirloom.node-restriction.kubernetes.io/softened: x, a: b}}}"}, causes: []string{"metadata.labels[heirloom.node-restriction.kubernetes.io/softened]"}},
		{name: "and in a template", request: write{kind: "MachineDeployment", object: "{spec: {template: {metadata: {labels: {heirloom.node-restriction.kubernetes.io/record: x}}}}}"}, causes: []string{"spec.template.metadata.labels[heirloom.node-restriction.kubernetes.io/record]"}},
		{name: "an update that leaves it alone is allowed", request: write{kind: "Machine", object: "{metadata: {labels: {heirloom.node-restriction.kubernetes.io/x: b}}}", old: "{metadata: {labels: {heirloom.node-restriction.kubernetes.io/x: a}}}"}},
		{name: "the label heirloom.dev/ignore is no way to a reserved taint", request: write{kind: "Machine", object: "{metadata: {labels: {heirloom.dev/ignore: ''}}, spec: {taints: " + reserved + "}}"}, causes: []string{"spec.taints[0].key"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			s := newServer(t, fleet{}, nil, inherit.Policy{})
			req := tc.request.request(t)
			response := failOpen{decider: taints{s.Dependencies}, metrics: s.Metrics}.Handle(t.Context(), req)
			Expect(response.Patches).To(BeEmpty())
			if len(tc.causes) == 0 {
				Expect(response.Allowed).To(BeTrue())
				Expect(response.Warnings).To(BeEmpty())
				Expect(s.counted(t)).To(HaveExactElements(HaveSuffix(string(req.Operation) + " unchanged")))
				return
			}
			Expect(response.Allowed).To(BeFalse())
			Expect(s.counted(t)).To(HaveExactElements(HaveSuffix(string(req.Operation) + " rejected")))
			Expect(response.Result.Code).To(BeEquivalentTo(http.StatusUnprocessableEntity))
			Expect(response.Result.Reason).To(Equal(metav1.StatusReasonInvalid))
			Expect(response.Result.Details.Kind).To(Equal(req.Kind.Kind))
			Expect(response.Result.Details.Group).To(Equal(req.Kind.Group))
			Expect(response.Result.Details.Name).To(Equal("x"))
			var fields []string
			for _, cause := range response.Result.Details.Causes {
				fields = append(fields, cause.Field)
				Expect(response.Result.Message).To(ContainSubstring(cause.Field))
				Expect(cause.Message).NotTo(BeEmpty())
			}
			Expect(fields).To(Equal(tc.causes))
		})
	}
}

// Validation follows the mode and the enrollment of the Cluster: it refuses, warns, or has nothing to say.
func TestTaintsInTheModeOfTheCluster(t *testing.T) {
	const (
		wrong    = "taints: [{key: node.kubernetes.io/x, effect: NoSchedule, propagation: Always}]"
		enforced = "labels: {heirloom.dev/mode: enforce}"
		observed = "labels: {heirloom.dev/mode: observe}"
		section  = "workers: {machineDeployments: [{name: a, " + wrong + "}]}"
		inClass  = "{metadata: {%s}, spec: {topology: {classRef: {name: cc}, " + section + "}}}"
	)
	machine, template := write{kind: "Machine", object: "{spec: {clusterName: c, " + wrong + "}}"}, "{metadata: {labels: {cluster.x-k8s.io/cluster-name: c}}, spec: {machineTemplate: {spec: {"+wrong+"}}}}"
	clusters := func(metadata string) fleet {
		return fleet{clusters: map[string]string{"ns/c": "{metadata: {" + metadata + "}}"}}
	}
	ofClass := fleet{
		clusters: map[string]string{"ns/c": "{spec: {topology: {classRef: {name: cc}}}}"}, classes: map[string]string{"ns/cc": "{metadata: {" + observed + "}}"},
	}
	observing, labeled := inherit.Policy{Mode: inherit.Observe}, inherit.Policy{OnlyLabeled: true}
	for _, tc := range []struct {
		name    string
		policy  inherit.Policy
		cache   fleet
		request write
		outcome string
	}{
		{"an enforced Cluster", inherit.Policy{}, clusters(""), machine, "rejected"},
		{"a Cluster that is only observed", inherit.Policy{}, clusters(observed), machine, "observed"},
		{"a Cluster whose class is only observed", inherit.Policy{}, ofClass, machine, "observed"},
		{"a Cluster whose class does not exist", inherit.Policy{}, ofClass.with(func(f *fleet) { f.classes = nil }), machine, "rejected"},
		{"an installation that only observes", observing, clusters(""), machine, "observed"},
		{"an installation that only observes, whatever the label says", observing, clusters(enforced), machine, "observed"},
		{"a Cluster that is not enrolled", labeled, clusters(""), machine, "unmatched"},
		{"a control plane names its Cluster by label", inherit.Policy{}, clusters(observed), write{kind: "AcmeControlPlane", object: template}, "observed"},
		{"a Cluster itself, in the write that labels it", labeled, fleet{}, write{kind: "Cluster", object: fmt.Sprintf(inClass, enforced)}, "rejected"},
		{"a ClusterClass that is only observed", inherit.Policy{}, fleet{}, write{kind: "ClusterClass", object: "{metadata: {" + observed + "}, spec: {workers: {machineDeployments: [{class: a, " + wrong + "}]}}}"}, "observed"},
		{"a ClusterClass that is not enrolled", labeled, fleet{}, write{kind: "ClusterClass", object: "{spec: {workers: {machineDeployments: [{class: a, " + wrong + "}]}}}"}, "unmatched"},
		{"an unknown Cluster", inherit.Policy{}, fleet{}, machine, "rejected"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			s := newServer(t, tc.cache, nil, tc.policy)
			req := tc.request.request(t)
			req.Namespace = "ns"
			response := failOpen{decider: taints{s.Dependencies}, metrics: s.Metrics}.Handle(t.Context(), req)
			Expect(s.counted(t)).To(HaveExactElements(HaveSuffix("CREATE " + tc.outcome)))
			Expect(response.Allowed).To(Equal(tc.outcome != "rejected"))
			Expect(response.Warnings).To(HaveLen(map[string]int{"observed": 1}[tc.outcome]))
		})
	}
}

func TestUnreadableTaintsAreAllowed(t *testing.T) {
	Expect := NewWithT(t).Expect
	s := newServer(t, fleet{}, nil, inherit.Policy{})
	req := write{kind: "Machine", object: "{spec: {taints: {}}}"}.request(t)
	response := failOpen{decider: taints{s.Dependencies}, metrics: s.Metrics}.Handle(t.Context(), req)
	Expect(response.Allowed).To(BeTrue())
	Expect(response.Warnings).To(HaveExactElements(HavePrefix("heirloom: the taints of this write were not checked: ")))
	Expect(s.counted(t)).To(HaveExactElements(HaveSuffix(" failed")))
}

// A mistake in one of Heirloom's own keys gets a warning in the write that makes it, in Clusters that are not enrolled as well. A
// controller that copies the key does not.
func TestMistakesGetAWarning(t *testing.T) {
	const (
		unknown = "{metadata: {annotations: {taints.heirloom.dev/initialise: 'a:NoSchedule'}}}"
		said    = "heirloom: annotation taints.heirloom.dev/initialise is unknown and has no effect (did you mean the annotation taints.heirloom.dev/initialize?)"
		broken  = "{metadata: {annotations: {sync.heirloom.dev/labels: 'a b, team'}}}"
		named   = `heirloom: annotation sync.heirloom.dev/labels: "a b" is neither a key nor a prefix that ends with *`
		section = "{spec: {topology: {workers: {machineDeployments: [%s{name: a, metadata: {labels: {heirloom.dev/ignored: ''}}}]}}}}"
	)
	ignored := "heirloom: label heirloom.dev/ignored is unknown and has no effect (did you mean the label heirloom.dev/ignore?)"
	other := func(text string) string { return fmt.Sprintf(section, text) }
	for _, tc := range []struct {
		name string
		write
		users string
		want  []string
	}{
		{"an unknown key", write{kind: "Machine", object: unknown}, "", []string{said}},
		{"an unknown key that was there", write{kind: "Machine", object: unknown, old: unknown}, "", nil},
		{"a controller's copy", write{kind: "MachineDeployment", object: strings.Replace(unknown, "{metadata: {", "{metadata: {labels: {topology.cluster.x-k8s.io/owned: ''}, ", 1)}, "system:serviceaccounts", nil},
		{"an edit of a controller's object", write{kind: "Machine", object: strings.Replace(unknown, "{metadata: {", "{metadata: {ownerReferences: [{controller: true}], ", 1)}, "", []string{said}},
		{"a section", write{kind: "Cluster", object: other("")}, "", []string{ignored}},
		{"a section before it", write{kind: "Cluster", object: other("{name: b}, "), old: other("")}, "", nil},
		{"the control plane itself, in its template", write{kind: "AcmeControlPlaneTemplate", object: "{spec: {template: {metadata: {annotations: {taints.heirloom.dev/always: 'a:NoSchedule'}}}}}"}, "",
			[]string{"heirloom: annotation taints.heirloom.dev/always has no effect here: it has effect only on a Machine, in a template of Machines " +
				"(spec.template.metadata or spec.machineTemplate.metadata), and in a section of a topology or a ClusterClass"}},
		{"entries of a Cluster", write{kind: "Cluster", object: broken}, "", nil}, // not enrolled
		{"entries of an enrolled ClusterClass", write{kind: "ClusterClass", object: strings.Replace(broken, "{metadata: {", "{metadata: {labels: {heirloom.dev/mode: enforce}, ", 1)}, "", []string{named}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			s := newServer(t, fleet{}, nil, inherit.Policy{SyncAllowed: []string{inherit.SyncAnyKey}, OnlyLabeled: true})
			req := tc.request(t)
			req.UserInfo.Groups = []string{tc.users}
			response := failOpen{decider: taints{s.Dependencies}, metrics: s.Metrics}.Handle(t.Context(), req)
			Expect(response.Allowed).To(BeTrue())
			Expect(response.Warnings).To(Equal(tc.want))
		})
	}
}
