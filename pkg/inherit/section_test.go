// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// topology reads "a=small,b=big": sections by name and class. "-" is none at all.
func topology(s string) clusterv1.Topology {
	if s == "-" {
		return clusterv1.Topology{}
	}
	all := clusterv1.WorkersTopology{}
	for entry := range strings.SplitSeq(s, ",") {
		name, class, _ := strings.Cut(entry, "=")
		all.MachineDeployments = append(all.MachineDeployments, clusterv1.MachineDeploymentTopology{Name: name, Class: class})
		all.MachinePools = append(all.MachinePools, clusterv1.MachinePoolTopology{Name: name, Class: class})
	}
	cp := clusterv1.ControlPlaneTopology{Metadata: clusterv1.ObjectMeta{Labels: labels("in=topology")}}
	return clusterv1.Topology{ControlPlane: cp, Workers: all}
}

// classes reads "small,big": sections by class.
func classes(s string) *clusterv1.ClusterClass {
	all := clusterv1.WorkersClass{}
	for class := range strings.SplitSeq(s, ",") {
		all.MachineDeployments = append(all.MachineDeployments, clusterv1.MachineDeploymentClass{Class: class})
		all.MachinePools = append(all.MachinePools, clusterv1.MachinePoolClass{Class: class})
	}
	cp := clusterv1.ControlPlaneClass{Metadata: clusterv1.ObjectMeta{Labels: labels("in=class")}}
	return &clusterv1.ClusterClass{Spec: clusterv1.ClusterClassSpec{ControlPlane: cp, Workers: all}}
}

// describeSection writes down which sections these are, "" where there is none.
func describeSection(s *inherit.Section) string {
	if s == nil {
		return ""
	}
	if s.Topology.Name == "" && s.Topology.Labels["in"] == "topology" && s.Class.Labels["in"] == "class" {
		return "control plane"
	}
	return s.Topology.Name + " of " + s.Class.Name
}

const ofCluster = "cluster.x-k8s.io/cluster-name=c,topology.cluster.x-k8s.io/owned="

func TestSectionOfWorkers(t *testing.T) {
	const named = ofCluster + ",topology.cluster.x-k8s.io/KIND-name="
	for _, tc := range []struct {
		name, labels, topology, classes, want string
	}{
		{name: "an object that the topology manages is known by name", labels: named + "b", topology: "a=small,b=big", classes: "small,big", want: "b of big"},
		{name: "two names may have one class", labels: named + "b", topology: "a=small,b=small", classes: "small", want: "b of small"},
		{name: "an object of a Cluster without a topology has none", labels: named + "a", topology: "-", classes: "small"},
		{name: "an object of another Cluster has none", labels: "cluster.x-k8s.io/cluster-name=other,topology.cluster.x-k8s.io/owned=,topology.cluster.x-k8s.io/KIND-name=a", topology: "a=small", classes: "small"},
		{name: "an object of no Cluster has none", labels: "topology.cluster.x-k8s.io/owned=,topology.cluster.x-k8s.io/KIND-name=a", topology: "a=small", classes: "small"},
		{name: "an object that somebody else made has none", labels: "cluster.x-k8s.io/cluster-name=c,topology.cluster.x-k8s.io/KIND-name=a", topology: "a=small", classes: "small"},
		{name: "an object without a name has none", labels: ofCluster, topology: "a=small", classes: "small"},
		{name: "not even one that has no name itself", labels: ofCluster, topology: "=small", classes: "small"},
		{name: "an empty name is none", labels: named, topology: "=small", classes: "small"},
		{name: "a name that the topology does not have any more has none", labels: named + "gone", topology: "a=small", classes: "small"},
		{name: "a section whose class is missing has none", labels: named + "a", topology: "a=big", classes: "small"},
		{name: "the other kind's name does not count", labels: ofCluster + ",topology.cluster.x-k8s.io/OTHER-name=a", topology: "a=small", classes: "small"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			cluster, class := &clusterv1.Cluster{}, classes(tc.classes)
			cluster.Name, cluster.Spec.Topology = "c", topology(tc.topology)
			md, mp := &clusterv1.MachineDeployment{}, &clusterv1.MachinePool{}
			md.Labels = labels(strings.NewReplacer("KIND", "deployment", "OTHER", "pool").Replace(tc.labels))
			mp.Labels = labels(strings.NewReplacer("KIND", "pool", "OTHER", "deployment").Replace(tc.labels))
			Expect(describeSection(inherit.SectionOf(cluster, class, md))).To(Equal(tc.want))
			Expect(describeSection(inherit.SectionOf(cluster, class, mp))).To(Equal(tc.want))
		})
	}
}

func TestSectionOfControlPlane(t *testing.T) {
	const group = "controlplane.cluster.x-k8s.io"
	acme := clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: "AcmeControlPlane", Name: "x"}
	for _, tc := range []struct {
		name, labels string
		topology     string
		ref          clusterv1.ContractVersionedObjectReference
		want         string
	}{
		{name: "the control plane that the Cluster refers to is known", labels: ofCluster, ref: acme, want: "control plane"},
		{name: "one that the Cluster does not refer to yet is known by its labels", labels: ofCluster, want: "control plane"},
		{name: "one of another name is another", labels: ofCluster, ref: clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: "AcmeControlPlane", Name: "y"}},
		{name: "one of another kind is another", labels: ofCluster, ref: clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: "OtherControlPlane", Name: "x"}},
		{name: "one of another group is another", labels: ofCluster, ref: clusterv1.ContractVersionedObjectReference{APIGroup: "example.com", Kind: "AcmeControlPlane", Name: "x"}},
		{name: "one of another Cluster has none", labels: "cluster.x-k8s.io/cluster-name=other,topology.cluster.x-k8s.io/owned=", ref: acme},
		{name: "one that somebody else made has none", labels: "cluster.x-k8s.io/cluster-name=c", ref: acme},
		{name: "one of a Cluster without a topology has none", labels: ofCluster, topology: "-", ref: acme},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cluster := &clusterv1.Cluster{Spec: clusterv1.ClusterSpec{ControlPlaneRef: tc.ref, Topology: topology(tc.topology)}}
			cluster.Name = "c"
			cp := &inherit.ControlPlane{}
			cp.APIVersion, cp.Kind, cp.Name, cp.Labels = group+"/v1beta2", "AcmeControlPlane", "x", labels(tc.labels)
			NewWithT(t).Expect(describeSection(inherit.SectionOf(cluster, classes(""), cp))).To(Equal(tc.want))
		})
	}
}

// A Node does not wait for a MachineDeployment to inherit from its topology.
func TestEffectiveMachineDeployment(t *testing.T) {
	Expect := NewWithT(t).Expect
	md := &clusterv1.MachineDeployment{Spec: clusterv1.MachineDeploymentSpec{Selector: selector("app=x", ""), Template: content{
		labels: "app=x,mine=1,team=old", annotations: "mine=1", taints: "own:NoSchedule,gpu=old:NoSchedule",
	}.template()}}
	md.Name, md.Spec.ClusterName = "md", "c"
	before := md.DeepCopy()
	s := inherit.Section{Class: content{labels: "app=y,team=new", taints: "gpu=new:NoSchedule"}.section(), Topology: content{annotations: "note=1"}.section()}

	effectiveBy := func(policy inherit.Policy) *clusterv1.MachineDeployment {
		inherited, err := withProblems(policy.MachineDeployment(s, md))
		Expect(err).NotTo(HaveOccurred())
		return inherit.EffectiveMachineDeployment(md, inherited)
	}
	effective, untyped := effectiveBy(inherit.Policy{}), effectiveBy(inherit.Policy{ClusterAPITaints: inherit.PropagationDisabled})

	want := content{labels: "app=x,mine=1,team=new", annotations: "mine=1; note=1", taints: "own:NoSchedule,gpu=new:NoSchedule"}
	Expect(describeContent(inherit.OfMachineDeployment(effective).Template)).To(Equal(want.want()))
	want.taints = "own:NoSchedule,gpu=old:NoSchedule"
	Expect(describeContent(inherit.OfMachineDeployment(untyped).Template)).To(Equal(want.want()))
	Expect(effective.Name + "/" + effective.Spec.ClusterName).To(Equal("md/c"))
	Expect(effective.Spec.Selector).To(Equal(md.Spec.Selector))
	Expect(md).To(Equal(before), "the input is not mutated")
}

// Nor does the Node of a MachinePool, whose typed taints come by annotation, whatever Cluster API's feature gate says.
func TestEffectiveMachinePool(t *testing.T) {
	Expect := NewWithT(t).Expect
	mp := &clusterv1.MachinePool{Spec: clusterv1.MachinePoolSpec{Template: content{labels: "node.cluster.x-k8s.io/mine=1", annotations: "mine=1"}.template()}}
	before := mp.DeepCopy()
	s := inherit.Section{Class: content{labels: "node.cluster.x-k8s.io/a=1", taints: "gpu:NoSchedule,warm:NoSchedule@OnInitialization"}.section()}
	policy := inherit.Policy{ClusterAPITaints: inherit.PropagationDisabled}

	inherited, err := withProblems(policy.MachinePool(s, mp))
	Expect(err).NotTo(HaveOccurred())
	effective := &inherit.Template{Content: inherit.OfMachinePool(mp).Effective(inherited)}

	Expect(describeContent(&effective.Content)).To(Equal(content{
		labels:      "node.cluster.x-k8s.io/a=1,node.cluster.x-k8s.io/mine=1",
		annotations: "mine=1; taints.heirloom.dev/always=gpu:NoSchedule; taints.heirloom.dev/initialize=warm:NoSchedule",
	}.want()))
	Expect(mp).To(Equal(before), "the input is not mutated")
	node, err := withProblems(policy.Node(inherit.SourceOfMachinePool(mp, effective), content{}.node(), inherit.Privileged))
	Expect(err).NotTo(HaveOccurred())
	Expect(unrecorded(node).Labels).To(Equal(labels("node.cluster.x-k8s.io/a=1,node.cluster.x-k8s.io/mine=1")))
	Expect(node.Taints).To(ConsistOf(onNode("gpu:NoSchedule,warm:NoSchedule")))
}

// All six types of sections are read, with what each can declare.
func TestSectionsDeclare(t *testing.T) {
	const (
		lists   = "taints: [{key: gpu, value: 'true', effect: NoSchedule, propagation: Always}], readinessGates: [{conditionType: example.com/Ready, polarity: Negative}]"
		seconds = "deletion: {nodeDrainTimeoutSeconds: 90, nodeVolumeDetachTimeoutSeconds: 60, nodeDeletionTimeoutSeconds: 0}"
	)
	Expect := NewWithT(t).Expect
	cluster, class := &clusterv1.Cluster{}, &clusterv1.ClusterClass{}
	Expect(yaml.UnmarshalStrict([]byte("metadata: {name: c}\nspec: {topology: {classRef: {name: cc}, "+
		"controlPlane: {metadata: {labels: {tier: cp}}, "+seconds+", "+lists+"}, workers: {"+
		"machineDeployments: [{name: md, class: small, metadata: {labels: {tier: md}}, minReadySeconds: 5, "+seconds+", "+lists+"}], "+
		"machinePools: [{name: mp, class: pool, metadata: {labels: {tier: mp}}, minReadySeconds: 6, "+seconds+"}]}}}"), cluster)).To(Succeed())
	Expect(yaml.UnmarshalStrict([]byte("spec: {controlPlane: {metadata: {annotations: {note: cp}}, "+seconds+", "+lists+", machineInfrastructure: {templateRef: {name: t}}}, workers: {"+
		"machineDeployments: [{class: small, metadata: {annotations: {note: md}}, minReadySeconds: 5, "+seconds+", "+lists+"}], "+
		"machinePools: [{class: pool, metadata: {annotations: {note: mp}}, minReadySeconds: 6, "+seconds+"}]}}"), class)).To(Succeed())
	taints := []clusterv1.MachineTaint{{Key: "gpu", Value: "true", Effect: "NoSchedule", Propagation: "Always"}}
	gates := []clusterv1.MachineReadinessGate{{ConditionType: "example.com/Ready", Polarity: "Negative"}}
	timeouts := func(ready *int32) inherit.Seconds {
		return inherit.Seconds{new(int32(90)), new(int32(60)), new(int32(0)), ready}
	}
	for _, tc := range []struct {
		note   string
		object metav1.Object
		want   inherit.Content
	}{
		{"cp", &inherit.ControlPlane{}, inherit.Content{Taints: taints, Fields: inherit.Fields{Seconds: timeouts(nil), ReadinessGates: gates}}},
		{"md", &clusterv1.MachineDeployment{}, inherit.Content{Taints: taints, Fields: inherit.Fields{Seconds: timeouts(new(int32(5))), ReadinessGates: gates}}},
		{"mp", &clusterv1.MachinePool{}, inherit.Content{Fields: inherit.Fields{Seconds: timeouts(new(int32(6)))}}},
	} {
		tc.object.SetLabels(labels(ofCluster + ",topology.cluster.x-k8s.io/deployment-name=md,topology.cluster.x-k8s.io/pool-name=mp"))
		section := inherit.SectionOf(cluster, class, tc.object)
		Expect(section).NotTo(BeNil())
		Expect(section.Class.OfMachines).To(Equal(tc.note == "cp"))
		inTopology, inClass := tc.want, tc.want
		inTopology.Labels, inClass.Annotations = map[string]string{"tier": tc.note}, map[string]string{"note": tc.note}
		Expect(section.Topology.Content).To(Equal(inTopology), tc.note)
		Expect(section.Class.Content).To(Equal(inClass), tc.note)
	}
}

// What is not declared is told from what is declared as nothing.
func TestWhatIsDeclaredAsNothing(t *testing.T) {
	for section, declared := range map[string]bool{"{}": false, "{taints: null, readinessGates: null}": false, "{taints: [], readinessGates: []}": true} {
		cluster, cp := &clusterv1.Cluster{}, &inherit.ControlPlane{}
		NewWithT(t).Expect(yaml.Unmarshal([]byte("{metadata: {name: c}, spec: {topology: {classRef: {name: cc}, controlPlane: "+section+"}}}"), cluster)).To(Succeed())
		cp.Labels = labels(ofCluster)
		first := inherit.SectionOf(cluster, &clusterv1.ClusterClass{}, cp).Topology
		NewWithT(t).Expect(first.Taints != nil).To(Equal(declared), section)
		NewWithT(t).Expect(first.Fields.ReadinessGates != nil).To(Equal(declared), section)
	}
}
