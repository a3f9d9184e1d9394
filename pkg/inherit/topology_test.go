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

// section declares the content; the taints "none" are an explicitly empty list.
func (c content) section() inherit.Part {
	if c.taints == "none" {
		c.taints = ""
		s := c.section()
		s.Taints = []clusterv1.MachineTaint{}
		return s
	}
	return inherit.Part{Content: inherit.Content{Labels: labels(c.labels), Annotations: annotations(c.annotations), Taints: declared(c.taints)}}
}

// machines makes a ClusterClass's control plane consist of Machines.
func machines(s inherit.Part) inherit.Part {
	s.OfMachines = true
	return s
}

// rules are rules 1 to 3, for a control plane of Machines and for workers without a selector of their own.
var rules = map[string]func(inherit.Policy, inherit.Section) inherit.Object{
	"rule 1": func(p inherit.Policy, s inherit.Section) inherit.Object {
		s.Class = machines(s.Class)
		return whole(p.ControlPlane(s, inherit.Object{}))
	},
	"rule 2": func(p inherit.Policy, s inherit.Section) inherit.Object {
		return whole(p.MachineDeployment(s, &clusterv1.MachineDeployment{}))
	},
	"rule 3": func(p inherit.Policy, s inherit.Section) inherit.Object {
		return whole(p.MachinePool(s, &clusterv1.MachinePool{}))
	},
}

// TestTopologyMetadata checks the common part of rules 1 to 3: ClusterClass and Cluster → metadata and template's metadata.
func TestTopologyMetadata(t *testing.T) {
	for _, tc := range []struct {
		name            string
		class, topology content
		want            content
	}{
		{name: "nothing declared is nothing inherited"},
		{name: "both are merged, and the Cluster wins", class: content{labels: "a=class,b=class", annotations: "n=class; m=class"}, topology: content{labels: "b=cluster,c=cluster", annotations: "m=cluster; o=cluster"}, want: content{labels: "a=class,b=cluster,c=cluster", annotations: "n=class; m=cluster; o=cluster"}},
		{name: "an empty value of the Cluster wins, too", class: content{labels: "a=class", annotations: "n=class"}, topology: content{labels: "a=", annotations: "n="}, want: content{labels: "a=", annotations: "n="}},

		{name: "labels that say whose an object is are not touched", topology: content{labels: "ok=1,cluster.x-k8s.io/cluster-name=other,cluster.x-k8s.io/set-name=x,cluster.x-k8s.io/deployment-name=x,cluster.x-k8s.io/pool-name=x,cluster.x-k8s.io/control-plane=,cluster.x-k8s.io/control-plane-name=x"}, want: content{labels: "ok=1"}},
		{name: "labels by which the topology's controller finds its objects are not touched", class: content{labels: "ok=1,topology.cluster.x-k8s.io/owned=no,topology.cluster.x-k8s.io/deployment-name=x,topology.cluster.x-k8s.io/pool-name=x"}, want: content{labels: "ok=1"}},
		{name: "annotations of such names are no labels", topology: content{annotations: "cluster.x-k8s.io/cluster-name=x; topology.cluster.x-k8s.io/owned=x"}, want: content{annotations: "cluster.x-k8s.io/cluster-name=x; topology.cluster.x-k8s.io/owned=x"}},
		{name: "other bookkeeping was declared on purpose", topology: content{labels: "cluster.x-k8s.io/watch-filter=blue", annotations: "topology.cluster.x-k8s.io/mine=x"}, want: content{labels: "cluster.x-k8s.io/watch-filter=blue", annotations: "topology.cluster.x-k8s.io/mine=x"}},
		{name: "orders about upgrades are for the topology only", topology: content{annotations: "ok=1; topology.cluster.x-k8s.io/hold-upgrade-sequence=; topology.cluster.x-k8s.io/defer-upgrade="}, want: content{annotations: "ok=1"}},
	} {
		for rule, of := range rules {
			t.Run(tc.name+" by "+rule, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				s := inherit.Section{Class: tc.class.section(), Topology: tc.topology.section()}

				got := of(inherit.Policy{}, s)
				Expect(describeContent(&got.Top)).To(Equal(tc.want.want()))
				Expect(describeContent(got.Template)).To(Equal(tc.want.want()))
			})
		}
	}
}

// TestTopologyTaints checks typed taints of rules 1 and 2, which reach the template only.
func TestTopologyTaints(t *testing.T) {
	const role = "node-role.kubernetes.io/control-plane:NoSchedule"
	disabled := inherit.Policy{ClusterAPITaints: inherit.PropagationDisabled}
	for _, tc := range []struct {
		name            string
		policy          inherit.Policy
		class, topology string
		// controlPlane and workers are the inherited taints.
		controlPlane, workers               string
		controlPlaneProblem, workersProblem string
	}{
		{name: "the Cluster's taints are inherited", topology: "gpu:NoSchedule", controlPlane: "gpu:NoSchedule", workers: "gpu:NoSchedule"},
		{name: "the Cluster's list replaces the ClusterClass's", class: "gpu:NoSchedule,b:NoExecute", topology: "c:NoSchedule", controlPlane: "c:NoSchedule", workers: "c:NoSchedule"},
		{name: "an explicitly empty list replaces it, too", class: "gpu:NoSchedule", topology: "none"},
		{name: "they stay where Cluster API would refuse them, without a word", policy: disabled, class: "gpu:NoSchedule,node.kubernetes.io/x:NoSchedule"},
		{name: "reserved taints are left out, and said so", topology: "gpu:NoSchedule,node.kubernetes.io/x:NoSchedule", controlPlane: "gpu:NoSchedule", workers: "gpu:NoSchedule", controlPlaneProblem: `taint "node.kubernetes.io/x:NoSchedule": the prefix`, workersProblem: `taint "node.kubernetes.io/x:NoSchedule": the prefix`},
		{name: "the role's own taint is for control planes only", class: role + ",gpu:NoSchedule", controlPlane: role + ",gpu:NoSchedule", workers: "gpu:NoSchedule", workersProblem: "the key is reserved for control plane Machines"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			s := inherit.Section{Class: content{taints: tc.class}.section(), Topology: content{taints: tc.topology}.section()}

			controlPlane, err := withProblems(tc.policy.ControlPlane(s, inherit.Object{}))
			expectProblem(t, err, tc.controlPlaneProblem)
			Expect(describeContent(&controlPlane.Top)).To(BeEmpty())
			Expect(describeContent(controlPlane.Template)).To(Equal(content{taints: tc.controlPlane}.want()))

			workers, err := withProblems(tc.policy.MachineDeployment(s, &clusterv1.MachineDeployment{}))
			expectProblem(t, err, tc.workersProblem)
			Expect(describeContent(&workers.Top)).To(BeEmpty())
			Expect(describeContent(workers.Template)).To(Equal(content{taints: tc.workers}.want()))
		})
	}
}

// TestMachinePoolTaints checks rule 3: Cluster API refuses typed taints on a MachinePool, so they become annotations.
func TestMachinePoolTaints(t *testing.T) {
	const always, initialize = "taints.heirloom.dev/always=", "taints.heirloom.dev/initialize="
	for _, tc := range []struct {
		name            string
		class, topology content
		// want is the content that the template inherits; the metadata inherit the annotations as declared.
		want    string
		problem string
	}{
		{name: "typed taints become annotations", class: content{taints: "z:NoExecute,gpu=1:NoSchedule,b:NoSchedule@OnInitialization"}, want: always + "gpu=1:NoSchedule,z:NoExecute; " + initialize + "b:NoSchedule"},
		{name: "they join those that are annotated", class: content{taints: "z:NoSchedule"}, topology: content{annotations: "n=1; " + always + "b=2:NoSchedule; " + initialize + "c:NoSchedule"}, want: "n=1; " + always + "b=2:NoSchedule,z:NoSchedule; " + initialize + "c:NoSchedule"},
		{name: "a typed taint wins over an annotated one with another value", class: content{taints: "gpu=typed:NoSchedule", annotations: always + "gpu=annotated:NoSchedule"}, want: always + "gpu=typed:NoSchedule"},
		{name: "one that is always there wins over one at the start", class: content{taints: "gpu=typed:NoSchedule", annotations: initialize + "gpu=annotated:NoSchedule"}, want: always + "gpu=typed:NoSchedule"},
		{name: "one at the start wins over one that is always there", class: content{taints: "gpu=typed:NoSchedule@OnInitialization", annotations: always + "gpu=annotated:NoSchedule,z:NoSchedule"}, want: always + "z:NoSchedule; " + initialize + "gpu=typed:NoSchedule"},
		{name: "an annotation of which nothing is left goes", class: content{taints: "gpu:NoSchedule@OnInitialization", annotations: always + "gpu:NoSchedule"}, want: initialize + "gpu:NoSchedule"},
		{name: "reserved taints are left out, and said so", class: content{taints: "gpu:NoSchedule,node.kubernetes.io/x:NoSchedule"}, want: always + "gpu:NoSchedule", problem: `taint "node.kubernetes.io/x:NoSchedule"`},
		{name: "start-up gates stay", class: content{taints: "z:NoSchedule", annotations: "taints.heirloom.dev/until=net:NoSchedule until condition Net=False"}, want: "taints.heirloom.dev/until=net:NoSchedule until condition Net=False; " + always + "z:NoSchedule"},
		{name: "what cannot be read of the annotation does not lose the rest", class: content{taints: "gpu:NoSchedule", annotations: always + "typo,b:NoSchedule"}, want: always + "b:NoSchedule,gpu:NoSchedule", problem: `taint "typo" lacks an effect`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, gate := range []inherit.TaintPropagation{inherit.PropagationUnknown, inherit.PropagationEnabled, inherit.PropagationDisabled} {
				Expect := NewWithT(t).Expect
				s := inherit.Section{Class: tc.class.section(), Topology: tc.topology.section()}

				got, err := withProblems(inherit.Policy{ClusterAPITaints: gate}.MachinePool(s, &clusterv1.MachinePool{}))

				expectProblem(t, err, tc.problem)
				Expect(describeContent(got.Template)).To(Equal(content{annotations: tc.want}.want()), "gate %s", gate)
				Expect(describeContent(&got.Top)).To(Equal(content{annotations: tc.class.annotations + ";" + tc.topology.annotations}.want()), "gate %s", gate)
			}
		})
	}
}

// The labels in a MachineDeployment's selector are its own. A topology's controller selects by labels of its own anyway.
func TestMachineDeploymentSelector(t *testing.T) {
	Expect := NewWithT(t).Expect
	md := &clusterv1.MachineDeployment{Spec: clusterv1.MachineDeploymentSpec{Selector: selector("app=x", "tier")}}
	s := inherit.Section{Class: content{labels: "app=y,team=a"}.section(), Topology: content{labels: "tier=z", annotations: "app=y"}.section()}
	got := whole(inherit.Policy{}.MachineDeployment(s, md))
	Expect(describeContent(&got.Top)).To(Equal(content{labels: "team=a", annotations: "app=y"}.want()))
	Expect(describeContent(got.Template)).To(Equal(content{labels: "team=a", annotations: "app=y"}.want()))
}

// A control plane without Machines inherits metadata for itself only; taints and fields still reach the template.
func TestControlPlaneWithoutMachines(t *testing.T) {
	Expect := NewWithT(t).Expect
	s := inherit.Section{Class: content{labels: "a=1"}.section(), Topology: machines(content{annotations: "n=1", taints: "gpu:NoSchedule"}.section())}
	s.Class.Fields.Seconds[inherit.NodeDrainTimeout] = new(int32(5))
	got := whole(inherit.Policy{}.ControlPlane(s, inherit.Object{}))
	Expect(describeContent(&got.Top)).To(Equal(content{labels: "a=1", annotations: "n=1"}.want()))
	Expect(describeContent(got.Template)).To(Equal(content{taints: "gpu:NoSchedule"}.want()), "the ClusterClass's machineInfrastructure decides")
	Expect(got.Template.Fields).To(Equal(inherit.Fields{Seconds: inherit.Seconds{inherit.NodeDrainTimeout: new(int32(5))}}))
}

// Cluster API alone knows the control plane's own metadata if a patch may change it. Its Machines inherit as without the patch.
func TestControlPlaneWithPatches(t *testing.T) {
	Expect := NewWithT(t).Expect
	all := content{labels: "a=1", annotations: "n=1", taints: "gpu:NoSchedule"}
	s := inherit.Section{Class: machines(all.section()), Patch: "p"}
	s.Class.OfMachines = true
	got, dropped := inherit.Policy{}.ControlPlane(s, inherit.Object{})
	Expect(describeContent(&got.Top)).To(Equal(content{}.want()))
	Expect(describeContent(got.Template)).To(Equal(all.want()))
	Expect(dropped).To(ConsistOf(
		HaveField("Entry", inherit.Entry{What: "label", Name: "a", Own: true}), HaveField("Entry", inherit.Entry{What: "annotation", Name: "n", Own: true})))
	Expect(dropped).To(HaveEach(HaveField("Why", inherit.DropPatched)))
	Expect(dropped.Problems()).To(Succeed())
}

func TestPatchOfControlPlane(t *testing.T) {
	json := func(kind, path string, controlPlane bool) clusterv1.ClusterClassPatch {
		return clusterv1.ClusterClassPatch{Name: "p", Definitions: []clusterv1.PatchDefinition{{
			Selector:    clusterv1.PatchSelector{Kind: kind, MatchResources: clusterv1.PatchSelectorMatch{ControlPlane: &controlPlane}},
			JSONPatches: []clusterv1.JSONPatch{{Op: "add", Path: "/spec/template/spec/x"}, {Op: "add", Path: path}},
		}}}
	}
	external := func(of clusterv1.ExternalPatchDefinition) clusterv1.ClusterClassPatch {
		return clusterv1.ClusterClassPatch{Name: "p", External: &of}
	}
	for name, tc := range map[string]struct {
		patch clusterv1.ClusterClassPatch
		may   bool
	}{
		"a label":                     {json("AcmeTemplate", "/spec/template/metadata/labels/a", true), true},
		"all labels":                  {json("AcmeTemplate", "/spec/template/metadata/labels", true), true},
		"the metadata":                {json("AcmeTemplate", "/spec/template/metadata", true), true},
		"the template":                {json("AcmeTemplate", "/spec/template", true), true},
		"the spec":                    {json("AcmeTemplate", "/spec", true), true},
		"the spec in the template":    {json("AcmeTemplate", "/spec/template/spec/machineTemplate/metadata/labels/a", true), false},
		"a name that begins the same": {json("AcmeTemplate", "/spec/template/metadataX", true), false},
		"the InfraMachineTemplate":    {json("AcmeMachineTemplate", "/spec/template/metadata/labels/a", true), false},
		"another object's template":   {json("AcmeTemplate", "/spec/template/metadata/labels/a", false), false},
		"an extension that patches":   {external(clusterv1.ExternalPatchDefinition{GeneratePatchesExtension: "e"}), true},
		"an extension that validates": {external(clusterv1.ExternalPatchDefinition{ValidateTopologyExtension: "e"}), false},
	} {
		class := &clusterv1.ClusterClass{}
		class.Spec.ControlPlane.TemplateRef.Kind = "AcmeTemplate"
		class.Spec.Patches = []clusterv1.ClusterClassPatch{{Name: "other"}, tc.patch}
		want := map[bool]string{true: "p"}[tc.may]
		NewWithT(t).Expect(inherit.PatchOfControlPlane(class, inherit.TemplateMetadata)).To(Equal(want), name)
		class.Spec.Patches = inherit.PatchesRead(class.Spec.Patches)
		NewWithT(t).Expect(inherit.PatchOfControlPlane(class, inherit.TemplateMetadata)).To(Equal(want), "%s, of the cache", name)
	}
	class := &clusterv1.ClusterClass{}
	class.Spec.ControlPlane.TemplateRef.Kind = "AcmeTemplate"
	class.Spec.Patches = []clusterv1.ClusterClassPatch{json("AcmeTemplate", "/spec/template/metadata/labels/a", true)}
	for path, want := range map[string]string{"/labels/a": "p", "/labels": "p", "/labels/ab": "", "/labels/b": "", "/annotations/a": ""} {
		NewWithT(t).Expect(inherit.PatchOfControlPlane(class, inherit.TemplateMetadata+path)).To(Equal(want), path)
	}
}

// In-place fields reach the template; each field of the Cluster replaces the ClusterClass's field.
func TestTopologyFields(t *testing.T) {
	declaring := func(fields inherit.Fields) inherit.Part {
		return inherit.Part{Content: inherit.Content{Fields: fields}}
	}
	drain := func(seconds int32) inherit.Part {
		return declaring(inherit.Fields{Seconds: inherit.Seconds{inherit.NodeDrainTimeout: &seconds}})
	}
	gates := func(conditions ...string) []clusterv1.MachineReadinessGate {
		list := []clusterv1.MachineReadinessGate{}
		for _, condition := range conditions {
			list = append(list, clusterv1.MachineReadinessGate{ConditionType: condition})
		}
		return list
	}
	only := func(conditions ...string) inherit.Part {
		return declaring(inherit.Fields{ReadinessGates: gates(conditions...)})
	}
	fields := inherit.Fields{
		Seconds:        inherit.Seconds{inherit.NodeDrainTimeout: new(int32(1)), inherit.NodeVolumeDetachTimeout: new(int32(2)), inherit.NodeDeletionTimeout: new(int32(3)), inherit.MinReadySeconds: new(int32(4))},
		ReadinessGates: gates("a"),
	}
	whole, nines := declaring(fields), inherit.Fields{ReadinessGates: gates("b")}
	for f := range nines.Seconds {
		nines.Seconds[f] = new(int32(9))
	}
	for _, tc := range []struct {
		name            string
		class, topology inherit.Part
		want            inherit.Fields
	}{
		{name: "what the ClusterClass declares is inherited", class: whole, want: fields},
		{name: "each for itself", class: whole, topology: drain(9), want: inherit.Fields{
			Seconds:        inherit.Seconds{inherit.NodeDrainTimeout: new(int32(9)), inherit.NodeVolumeDetachTimeout: new(int32(2)), inherit.NodeDeletionTimeout: new(int32(3)), inherit.MinReadySeconds: new(int32(4))},
			ReadinessGates: gates("a"),
		}},
		{name: "the Cluster's gates replace the ClusterClass's", class: only("a", "b"), topology: only("c"), want: inherit.Fields{ReadinessGates: gates("c")}},
		{name: "an explicitly empty list of gates replaces them, too", class: only("a"), topology: only(), want: inherit.Fields{ReadinessGates: gates()}},
	} {
		for rule, of := range rules {
			t.Run(tc.name+" by "+rule, func(t *testing.T) {
				s := inherit.Section{Class: tc.class, Topology: tc.topology}
				got := of(inherit.Policy{}, s)
				NewWithT(t).Expect(got.Top.Fields).To(Equal(inherit.Fields{}), "they are the template's")
				NewWithT(t).Expect(got.Template.Fields).To(Equal(tc.want))
			})
		}
	}
}

// topology reads "a=small,b=big": sections by name and class. "-" is an empty topology.
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

// describeSection names the parts of a section, "" without a section.
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
		{name: "an object of a Cluster without a topology has none", labels: named + "a", topology: "-", classes: "small"},
		{name: "an object of another Cluster has none", labels: "cluster.x-k8s.io/cluster-name=other,topology.cluster.x-k8s.io/owned=,topology.cluster.x-k8s.io/KIND-name=a", topology: "a=small", classes: "small"},
		{name: "an object that somebody else made has none", labels: "cluster.x-k8s.io/cluster-name=c,topology.cluster.x-k8s.io/KIND-name=a", topology: "a=small", classes: "small"},
		{name: "an object without a name has none", labels: ofCluster, topology: "a=small", classes: "small"},
		{name: "not even one that has no name itself", labels: ofCluster, topology: "=small", classes: "small"},
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
		inherited := whole(policy.MachineDeployment(s, md))
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

// All six types of sections are read, with all their declarations.
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

// A missing list differs from an explicitly empty list.
func TestEmptyListsAreDeclarations(t *testing.T) {
	for section, declared := range map[string]bool{"{}": false, "{taints: null, readinessGates: null}": false, "{taints: [], readinessGates: []}": true} {
		cluster, cp := &clusterv1.Cluster{}, &inherit.ControlPlane{}
		NewWithT(t).Expect(yaml.Unmarshal([]byte("{metadata: {name: c}, spec: {topology: {classRef: {name: cc}, controlPlane: "+section+"}}}"), cluster)).To(Succeed())
		cp.Labels = labels(ofCluster)
		first := inherit.SectionOf(cluster, &clusterv1.ClusterClass{}, cp).Topology
		NewWithT(t).Expect(first.Taints != nil).To(Equal(declared), section)
		NewWithT(t).Expect(first.Fields.ReadinessGates != nil).To(Equal(declared), section)
	}
}
