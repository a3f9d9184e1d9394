// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
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
func TestWhoIsAutoscaled(t *testing.T) {
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
func TestWhatDoesNotFitIsNotTold(t *testing.T) {
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

// cluster-autoscaler reads each written entry unchanged. Entries that are no valid label or taint are left out and reported.
func TestAutoscalerReadsWhatIsWritten(t *testing.T) {
	words := []string{"", "a", "b=c", "d,e", "f:g", "h i", "node.cluster.x-k8s.io/x", "-", "é", strings.Repeat("x", 64)}
	for _, first := range words {
		for _, second := range words {
			template := inherit.Content{
				Labels: map[string]string{"node.cluster.x-k8s.io/one": first, "two.node.cluster.x-k8s.io/" + second: first},
				Taints: []clusterv1.MachineTaint{
					{Key: first, Value: second, Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationAlways},
					{Key: "k/" + second, Value: first, Effect: corev1.TaintEffectNoExecute, Propagation: clusterv1.MachineTaintPropagationOnInitialization},
				},
			}
			told, problems := withProblems(inherit.Policy{}.Capacity(inherit.Object{Top: inherit.Content{Annotations: bounds("0 to 1")}, Template: &template}, inherit.Object{}))
			node := autoscaled{told[inherit.CapacityLabelsAnnotation], told[inherit.CapacityTaintsAnnotation]}
			for key, value := range template.Labels {
				valid := len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0
				expectRead(t, node.labels(), key+"="+value, valid, problems)
			}
			for _, declared := range template.Taints {
				wrong, _ := taint.Problem(taint.Worker, declared)
				expectRead(t, node.taints(), fmt.Sprintf("%s=%s:%s", declared.Key, declared.Value, declared.Effect), wrong == "", problems)
			}
			NewWithT(t).Expect(len(node.labels()) + len(node.taints())).To(BeNumerically("<=", 4))
		}
	}
}

func expectRead(t *testing.T, read []string, entry string, valid bool, problems error) {
	t.Helper()
	if valid {
		NewWithT(t).Expect(read).To(ContainElement(entry))
		return
	}
	NewWithT(t).Expect(read).NotTo(ContainElement(entry))
	NewWithT(t).Expect(problems).To(HaveOccurred(), "an entry that is left out is reported: %q", entry)
}

// autoscaled holds the annotation values for cluster-autoscaler. Its methods follow Labels, Taints and parseTaint in
// cloudprovider/clusterapi/clusterapi_unstructured.go, which are equal in releases 1.33 to 1.36; blanks are not trimmed.
type autoscaled struct{ labelList, taintList string }

// labels splits the list at commas, and each label at its first equals sign. It skips a label without an equals sign.
func (a autoscaled) labels() []string {
	var read []string
	for label := range strings.SplitSeq(a.labelList, ",") {
		if key, value, ok := strings.Cut(label, "="); ok {
			read = append(read, key+"="+value)
		}
	}
	return read
}

// taints splits the list at commas. It skips a taint with more than one colon, with more than one equals sign before the colon, or with
// an invalid key or value.
func (a autoscaled) taints() []string {
	var read []string
	for entry := range strings.SplitSeq(a.taintList, ",") {
		parts := strings.Split(entry, ":")
		if len(parts) != 2 {
			continue
		}
		pair := strings.Split(parts[0], "=")
		if len(pair) == 1 {
			pair = append(pair, "")
		}
		if len(pair) == 2 && len(validation.IsQualifiedName(pair[0])) == 0 && len(validation.IsValidLabelValue(pair[1])) == 0 {
			read = append(read, pair[0]+"="+pair[1]+":"+parts[1])
		}
	}
	return read
}
