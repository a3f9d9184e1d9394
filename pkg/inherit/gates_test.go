// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// A gate that closed when the Node registered opens once: its taint goes when the Node has the condition or a ready Pod of the DaemonSet,
// and never comes back. The record drops the gate then, or when it is no longer declared.
func TestGatesOpenOnce(t *testing.T) {
	const net, cni = "taints.heirloom.dev/until=net=calico:NoSchedule until condition Net=False", "taints.heirloom.dev/until=cni:NoSchedule until daemonset kube-system/cni"
	conditions := []corev1.NodeCondition{{Type: "Ready", Status: "True"}, {Type: "Net", Status: "False"}}
	ready := sets.New(taint.Requirement{Kind: taint.DaemonSet, Name: "kube-system/cni"})
	for _, tc := range []struct {
		name          string
		machine, node content
		recorded      []string
		conditions    []corev1.NodeCondition
		ready         sets.Set[taint.Requirement]
		want          string
		closed        []string
	}{
		{name: "a condition opens a gate", machine: content{annotations: net}, recorded: []string{"net:NoSchedule"}, conditions: conditions, node: content{taints: "net=calico:NoSchedule,z:NoSchedule"}, want: "z:NoSchedule"},
		{name: "a DaemonSet opens a gate", machine: content{annotations: cni}, recorded: []string{"cni:NoSchedule"}, ready: ready, node: content{taints: "cni:NoSchedule"}},
		{name: "another status does not", machine: content{annotations: net}, recorded: []string{"net:NoSchedule"}, conditions: []corev1.NodeCondition{{Type: "Net", Status: "True"}}, node: content{taints: "net=calico:NoSchedule"}, want: "net=calico:NoSchedule", closed: []string{"net:NoSchedule"}},
		{name: "a taint that comes back by hand stays", machine: content{annotations: net}, conditions: conditions, node: content{taints: "net=calico:NoSchedule"}, want: "net=calico:NoSchedule"},
		{name: "a taint with another value is foreign", machine: content{annotations: net}, recorded: []string{"net:NoSchedule"}, conditions: conditions, node: content{taints: "net=other:NoSchedule"}, want: "net=other:NoSchedule"},
		{name: "a taint that is Always stays", machine: content{taints: "net=calico:NoSchedule", annotations: net}, recorded: []string{"net:NoSchedule"}, conditions: conditions, node: content{taints: "net=calico:NoSchedule"}, want: "net=calico:NoSchedule"},
		{name: "a typed Initialize taint may have a gate", machine: content{taints: "net=typed:NoSchedule@OnInitialization", annotations: net}, recorded: []string{"net:NoSchedule"}, conditions: conditions, node: content{taints: "net=typed:NoSchedule"}},
		{name: "a gate that is no longer declared is left out of the record", machine: content{annotations: cni}, recorded: []string{"net:NoSchedule", "cni:NoSchedule"}, node: content{taints: "net=calico:NoSchedule,cni:NoSchedule"}, want: "cni:NoSchedule,net=calico:NoSchedule", closed: []string{"cni:NoSchedule"}},
		{name: "an administrator's taint stays if a gate is declared later", machine: content{annotations: net}, conditions: conditions, node: content{taints: "net=calico:NoSchedule", annotations: "capi/taints="}, want: "net=calico:NoSchedule"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect, from := NewWithT(t).Expect, inherit.SourceOfMachine(tc.machine.machine())
			node := old(inherit.Record{Gates: tc.recorded}.Recorded(tc.node.node()))
			node.Object.Status.Conditions = tc.conditions
			plan := inherit.Policy{}.PlanNode(node, from, inherit.Turn{OpensGates: true, Met: tc.ready})
			Expect(taint.FormatList(plan.Result.Taints)).To(Equal(tc.want))
			Expect(inherit.RecordOf(plan.Result).Gates).To(Equal(tc.closed))
			Expect(plan.Gates).To(HaveLen(len(tc.closed)))
			Expect(len(plan.Opened) > 0).To(Equal(len(plan.Removed) > 0))
			Expect(inherit.Policy{}.PlanNode(node, from, inherit.Turn{}).Opened).To(BeEmpty(), "gates open only in a write that may open them")
		})
	}
}

// A gate opens when the Node meets all its requirements; no time opens it. Kubernetes' conditions of maintenance are conditions like any other.
func TestGatesWaitForAllRequirements(t *testing.T) {
	const all = "daemonset kube-system/cni and allocatable nvidia.com/gpu and condition Net=True and csinode ebs.csi.aws.com within 1s"
	some, none := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}, corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("0")}
	cni, csi := taint.Requirement{Kind: taint.DaemonSet, Name: "kube-system/cni"}, taint.Requirement{Kind: taint.CSINode, Name: "ebs.csi.aws.com"}
	for _, tc := range []struct {
		until       string
		conditions  string // that are True
		allocatable corev1.ResourceList
		met         sets.Set[taint.Requirement]
		lacks       string
	}{
		{until: "allocatable nvidia.com/gpu", lacks: "allocatable nvidia.com/gpu"},
		{until: "allocatable nvidia.com/gpu", allocatable: none, lacks: "allocatable nvidia.com/gpu"},
		{until: "allocatable nvidia.com/gpu", allocatable: some},
		{until: "csinode ebs.csi.aws.com", met: sets.New(cni), lacks: "csinode ebs.csi.aws.com"},
		{until: "csinode ebs.csi.aws.com", met: sets.New(csi)},
		{until: all, allocatable: some, conditions: "Net", met: sets.New(cni, csi)},
		{until: all, allocatable: some, conditions: "Net", met: sets.New(csi), lacks: "daemonset kube-system/cni"},
		{until: all, allocatable: none, conditions: "Net", met: sets.New(cni, csi), lacks: "allocatable nvidia.com/gpu"},
		{until: all, allocatable: some, met: sets.New(cni), lacks: "condition Net=True and csinode ebs.csi.aws.com"},
		{until: "condition Drained=True and condition DrainInProgress=True", conditions: "Drained", lacks: "condition DrainInProgress=True"},
		{until: "condition MaintenancePlanned=True and condition MaintenanceInProgress=True", conditions: "MaintenancePlanned MaintenanceInProgress"},
	} {
		t.Run(tc.until, func(t *testing.T) {
			Expect, from := NewWithT(t).Expect, inherit.SourceOfMachine(content{annotations: "taints.heirloom.dev/until=gpu:NoSchedule until " + tc.until}.machine())
			node := old(inherit.Record{Gates: []string{"gpu:NoSchedule"}}.Recorded(content{taints: "gpu:NoSchedule"}.node()))
			for _, name := range strings.Fields(tc.conditions) {
				node.Object.Status.Conditions = append(node.Object.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(name), Status: "True"})
			}
			node.Object.Status.Allocatable = tc.allocatable
			plan := inherit.Policy{}.PlanNode(node, from, inherit.Turn{OpensGates: true, Met: tc.met})
			if tc.lacks == "" {
				Expect(plan.Opened).To(HaveLen(1))
				Expect(plan.Result.Taints).To(BeEmpty())
				return
			}
			Expect(taint.FormatList(plan.Result.Taints)).To(Equal("gpu:NoSchedule"))
			Expect(inherit.ValidRecord(plan.Result)).To(Equal(";;gates=gpu:NoSchedule"), "in the form that older versions read")
			Expect(taint.Requirements(node.Lacks(plan.Gates[0], tc.met))).To(Equal(tc.lacks))
		})
	}
}

// A gate's taint is an OnInitialization taint. A kubelet cannot claim gates; after a gate has opened, the reason names it.
func TestAGateIsClosedAtRegistration(t *testing.T) {
	Expect, p := NewWithT(t).Expect, inherit.Policy{}
	from := inherit.SourceOfMachine(content{annotations: "taints.heirloom.dev/until=net:NoSchedule until condition Net=False"}.machine())
	claimed := inherit.Record{Gates: []string{"other:NoSchedule"}}.Recorded(content{}.node())
	registered := p.PlanNode(aged(claimed, time.Minute), from, kubelet)
	Expect(registered.Result.Taints).To(ContainElement(corev1.Taint{Key: "net", Effect: "NoSchedule"}))
	Expect(registered.Gates).To(HaveLen(1))
	delete(registered.Result.Labels, inherit.RecordLabel) // NodeRestriction lets no kubelet set it
	written := p.PlanNode(aged(registered.Result, time.Minute), from, privileged).Result
	Expect(inherit.RecordOf(written).Gates).To(Equal([]string{"net:NoSchedule"}))

	opened := p.PlanNode(old(inherit.Record{}.Recorded(written)), from, privileged)
	Expect(from.WhyNot(opened.LeftOut, inherit.Entry{What: "taint", Name: "net:NoSchedule"})).To(Equal(inherit.DropGateOpened))
}

// A policy admits Nodes while Heirloom is down. A gate that closed then opens, also if Cluster API has initialized the Node before Heirloom
// is back. A taint with another value stays.
func TestGatesClosedByAPolicyAreRecorded(t *testing.T) {
	Expect, p := NewWithT(t).Expect, inherit.Policy{}
	m := content{annotations: "taints.heirloom.dev/until=net=calico:NoSchedule until condition Net=False"}.machine()
	from := inherit.SourceOfMachine(m)
	node := old(content{taints: "net=calico:NoSchedule"}.initialized())
	first := p.PlanNode(node, from, privileged)
	Expect(first.Gates).To(HaveLen(1))
	Expect(inherit.RecordOf(first.Result).Gates).To(Equal([]string{"net:NoSchedule"}))
	node.Object.Status.Conditions = []corev1.NodeCondition{{Type: "Net", Status: "False"}}
	opened := p.PlanNode(node, from, inherit.Turn{OpensGates: true})
	Expect(opened.Result.Taints).To(BeEmpty())
	Expect(opened.Opened).To(HaveLen(1))

	foreign := old(content{taints: "net=other:NoSchedule"}.initialized())
	foreign.Object.Status.Conditions = node.Object.Status.Conditions
	Expect(p.PlanNode(foreign, from, inherit.Turn{OpensGates: true}).Result.Taints).To(HaveLen(1))
	m.Labels[inherit.RecordLabel], node.Labels[inherit.RecordLabel] = "forged", "forged" // by Cluster API
	Expect(p.PlanNode(node, inherit.SourceOfMachine(m), inherit.Turn{OpensGates: true}).Result.Taints).To(HaveLen(1), "its Machine forges the record")
}
