// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"fmt"
	"net/http"
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
	observing, labelled := inherit.Policy{Mode: inherit.Observe}, inherit.Policy{OnlyLabelled: true}
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
		{"a Cluster that is not enrolled", labelled, clusters(""), machine, "unmatched"},
		{"a control plane names its Cluster by label", inherit.Policy{}, clusters(observed), write{kind: "AcmeControlPlane", object: template}, "observed"},
		{"a Cluster itself, in the write that labels it", labelled, fleet{}, write{kind: "Cluster", object: fmt.Sprintf(inClass, enforced)}, "rejected"},
		{"a ClusterClass that is only observed", inherit.Policy{}, fleet{}, write{kind: "ClusterClass", object: "{metadata: {" + observed + "}, spec: {workers: {machineDeployments: [{class: a, " + wrong + "}]}}}"}, "observed"},
		{"a ClusterClass that is not enrolled", labelled, fleet{}, write{kind: "ClusterClass", object: "{spec: {workers: {machineDeployments: [{class: a, " + wrong + "}]}}}"}, "unmatched"},
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

// Keys without effect get a warning: broken keys on a Cluster or a ClusterClass, and all keys elsewhere.
func TestNamedKeysWithoutEffectAreWarnedAbout(t *testing.T) {
	const (
		broken  = "annotations: {sync.heirloom.dev/labels: 'a b, team'}"
		problem = `"a b" is neither a key nor a prefix that ends with *`
		nowhere = "it has effect only in metadata.annotations of a Cluster or a ClusterClass"
	)
	for _, tc := range []struct {
		write
		want string
	}{
		{write{kind: "Cluster", object: "{metadata: {" + broken + "}}"}, problem},
		{write{kind: "ClusterClass", object: "{metadata: {" + broken + "}}"}, problem},
		{write{kind: "Cluster", object: "{spec: {topology: {workers: {machineDeployments: [{name: a, metadata: {" + broken + "}}]}}}}"}, nowhere},
		{write{kind: "ClusterClass", object: "{spec: {controlPlane: {metadata: {" + broken + "}}}}"}, nowhere},
		{write{kind: "MachineDeployment", object: "{spec: {template: {metadata: {" + broken + "}}}}"}, nowhere},
		{write{kind: "Machine", object: "{metadata: {" + broken + "}}"}, nowhere},
		{write{kind: "AcmeControlPlane", object: "{spec: {machineTemplate: {metadata: {" + broken + "}}}}"}, nowhere},
	} {
		Expect := NewWithT(t).Expect
		s := newServer(t, fleet{}, nil, inherit.Policy{SyncAllowed: []string{inherit.SyncAnyKey}})
		response := failOpen{decider: taints{s.Dependencies}, metrics: s.Metrics}.Handle(t.Context(), tc.request(t))
		Expect(response.Allowed).To(BeTrue())
		Expect(response.Warnings).To(HaveExactElements("heirloom: annotation sync.heirloom.dev/labels: " + tc.want))
	}
}
