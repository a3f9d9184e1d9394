// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// bounds reads "0 to 3" into the annotations with the minimum and maximum size for cluster-autoscaler; "-" leaves an annotation out.
func bounds(s string) map[string]string {
	least, most, _ := strings.Cut(s, " to ")
	m := map[string]string{clusterv1.AutoscalerMinSizeAnnotation: least, clusterv1.AutoscalerMaxSizeAnnotation: most}
	maps.DeleteFunc(m, func(_, value string) bool { return value == "-" })
	return m
}

func TestCapacity(t *testing.T) {
	gateOff := inherit.Policy{ClusterAPITaints: inherit.PropagationDisabled}
	for _, tc := range []struct {
		name              string
		policy            inherit.Policy
		template, inherit content
		labels, taints    string
		problem           string
	}{
		{name: "nothing declared, nothing told"},
		{name: "a label without a value", template: content{labels: "node-role.kubernetes.io/worker="}, labels: "node-role.kubernetes.io/worker="},
		{name: "no regex brings bookkeeping", policy: inherit.Policy{AdditionalLabels: regexes("")}, template: content{labels: "cluster.x-k8s.io/cluster-name=c,a=1"}, labels: "a=1"},
		{name: "taints by annotation", template: content{annotations: "taints.heirloom.dev/always=gpu=true:NoSchedule; taints.heirloom.dev/initialize=boot:NoSchedule"}, taints: "boot:NoSchedule,gpu=true:NoSchedule"},
		{name: "a new Node has Initialize taints", template: content{taints: "boot=yes:NoSchedule@OnInitialization"}, taints: "boot=yes:NoSchedule"},
		{name: "where the gate is off, typed taints reach no Node", policy: gateOff, template: content{taints: "gpu=a:NoSchedule", annotations: "taints.heirloom.dev/always=b:NoSchedule"}, taints: "b:NoSchedule"},
		{name: "what is inherited in the same write", template: content{labels: "node.cluster.x-k8s.io/a=1"}, inherit: content{labels: "node.cluster.x-k8s.io/a=2", taints: "gpu:NoSchedule", annotations: "taints.heirloom.dev/always=b:NoSchedule"}, labels: "node.cluster.x-k8s.io/a=2", taints: "b:NoSchedule,gpu:NoSchedule"},
		{name: "a reserved taint is left out", template: content{taints: "node.kubernetes.io/unreachable:NoSchedule,gpu:NoSchedule"}, taints: "gpu:NoSchedule", problem: "node.kubernetes.io/unreachable"},
		{name: "a taint that is none is left out", template: content{taints: "gpu=a/b:NoSchedule,boot=c/d:NoExecute@OnInitialization,ok:NoSchedule"}, taints: "ok:NoSchedule", problem: "gpu:NoSchedule"},
		{name: "a label that is none is left out", template: content{labels: "node.cluster.x-k8s.io/b=2"}, inherit: content{labels: "node.cluster.x-k8s.io/a=b=c"}, labels: "node.cluster.x-k8s.io/b=2", problem: `label "node.cluster.x-k8s.io/a"="b=c": no Node can carry it`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Annotations: bounds("0 to 3")}}
			md.Spec.Template = tc.template.template()
			inherits := inherit.OfMachineDeployment(&clusterv1.MachineDeployment{Spec: clusterv1.MachineDeploymentSpec{Template: tc.inherit.template()}})
			for _, has := range []inherit.Object{
				inherit.OfMachineDeployment(md),
				inherit.OfMachineSet(&clusterv1.MachineSet{ObjectMeta: md.ObjectMeta, Spec: clusterv1.MachineSetSpec{Template: md.Spec.Template}}),
				inherit.OfMachinePool(&clusterv1.MachinePool{ObjectMeta: md.ObjectMeta, Spec: clusterv1.MachinePoolSpec{Template: md.Spec.Template}}),
			} {
				told, err := withProblems(tc.policy.Capacity(has, inherits))
				expectProblem(t, err, tc.problem)
				want := map[string]string{inherit.CapacityLabelsAnnotation: tc.labels, inherit.CapacityTaintsAnnotation: tc.taints}
				maps.DeleteFunc(want, func(_, value string) bool { return value == "" })
				Expect(told).To(Equal(want))
			}
		})
	}
}

// cluster-autoscaler scales an object by parseScalingBounds and newNodeGroupFromScalableResource of its Cluster API provider.
func TestAutoscalingBounds(t *testing.T) {
	for limits, want := range map[string]bool{
		"0 to 3": true, "1 to 3": true, "3 to 3": true, "- to 3": true,
		"- to -": false, "0 to -": false, "0 to 0": false, "4 to 3": false, "-1 to 3": false, "0 to -3": false,
		"a to 3": false, "0 to b": false, " to 3": false, "0 to 3.5": false,
	} {
		t.Run(limits, func(t *testing.T) {
			has := inherit.Object{Template: &inherit.Content{Labels: labels("node.cluster.x-k8s.io/a=1")}}
			inherits := inherit.Object{Top: inherit.Content{Annotations: bounds(limits)}}
			told := whole(inherit.Policy{}.Capacity(has, inherits))
			NewWithT(t).Expect(told != nil).To(Equal(want), "bounds that are inherited")
			has.Top, inherits.Top = inherits.Top, has.Top
			told = whole(inherit.Policy{}.Capacity(has, inherits))
			NewWithT(t).Expect(told != nil).To(Equal(want), "bounds of its own")
		})
	}
}

func TestMachineSetsOfMachineDeployments(t *testing.T) {
	for want, metas := range map[bool][]metav1.ObjectMeta{
		true: {
			{OwnerReferences: []metav1.OwnerReference{{Kind: "MachineDeployment", Name: "md"}}},
			{Labels: labels("cluster.x-k8s.io/deployment-name=md")},
		},
		false: {{}, {OwnerReferences: []metav1.OwnerReference{{Kind: "Cluster", Name: "c"}}}},
	} {
		for _, meta := range metas {
			NewWithT(t).Expect(inherit.OfMachineDeployments(&clusterv1.MachineSet{ObjectMeta: meta})).To(Equal(want))
		}
	}
}

// A Node records only the keys of its labels. So it may have room for labels whose values do not fit into an annotation of its
// MachineDeployment.
func TestCapacityWithoutRoom(t *testing.T) {
	Expect := NewWithT(t).Expect
	labels := map[string]string{}
	for i := range 3_500 {
		labels[fmt.Sprintf("node.cluster.x-k8s.io/label-%d", i)] = strings.Repeat("x", 60)
	}
	object := inherit.Object{Top: inherit.Content{Annotations: bounds("0 to 1")}, Template: &inherit.Content{Labels: labels}}
	told, problems := withProblems(inherit.Policy{}.Capacity(object, inherit.Object{}))
	Expect(told).To(BeEmpty())
	Expect(problems).To(MatchError(ContainSubstring("the annotations with labels and taints of new Nodes for cluster-autoscaler have no room: annotations size")))
}
