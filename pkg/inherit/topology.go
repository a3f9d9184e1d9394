// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Section is what a ClusterClass and the topology of a Cluster declare for one object. Labels and annotations of both are merged,
// and the Cluster's win. Everything else that the Cluster declares replaces what the ClusterClass declares.
type Section struct {
	Class, Topology Part
	list            sectionList
}

// Part is a section of a ClusterClass or of a topology: what it declares for the objects of one kind and class.
type Part struct {
	// Name is a topology's own, Class its reference to a section of the ClusterClass, or that section's own name.
	Name, Class string
	Content
	// OfMachines says that a ClusterClass's control plane consists of Machines.
	OfMachines bool
}

// ControlPlane is rule 1: what a control plane inherits. As in Cluster API, it declares metadata for its Machines only if the
// ClusterClass says that it consists of Machines.
func (p Policy) ControlPlane(s Section, cp Object) (Object, Drops) {
	top := s.declared()
	template := top
	if !s.Class.OfMachines {
		template.Labels, template.Annotations = nil, nil
	}
	var out Drops
	return p.handDown(cp, &out, taint.ControlPlane, top, template, ofTemplate(true)), out
}

// MachineDeployment is rule 2: what a MachineDeployment inherits.
func (p Policy) MachineDeployment(s Section, md *clusterv1.MachineDeployment) (Object, Drops) {
	var out Drops
	declared := s.declared()
	return p.handDown(OfMachineDeployment(md), &out, taint.Worker, declared, declared, ofTemplate(true, md.Spec.Selector)), out
}

// MachinePool is rule 3: what a MachinePool inherits. Cluster API refuses typed taints there even with its feature gate on, so they
// are declared by annotation, and win over taints that annotations declare.
func (p Policy) MachinePool(s Section, mp *clusterv1.MachinePool) (Object, Drops) {
	var out Drops
	top, child := s.declared(), OfMachinePool(mp)
	template := top
	template.Taints = nil
	at := child.template(&out)
	if typed := at.usable(taint.Worker, top.Taints); len(typed) > 0 {
		annotated, unreadable := taint.FromAnnotations(top.Annotations)
		at.unreadable(unreadable)
		template.Annotations = filter(top.Annotations, func(key string) bool { return !declaresTaints(key) })
		maps.Copy(template.Annotations, taint.ToAnnotations(taint.Merge(typed, annotated)))
		for _, t := range typed {
			at.drop(taintKey, taint.MachineID(t).String(), DropTaints, "", "")
		}
	}
	return p.handDown(child, &out, taint.Worker, top, template, ofTemplate(true)), out
}

// handDown takes what a child with a Machine template inherits: metadata of its own, and all of its template.
func (p Policy) handDown(child Object, out *Drops, role taint.Role, top, template Content, label func(key string) Why) Object {
	at := child.top(out)
	inherited := p.take(child.template(out), role, template, label)
	return Object{
		Top:      Content{Labels: at.labels(top.Labels, label), Annotations: at.annotations(top.Annotations, declared)},
		Template: &inherited,
	}
}

// take takes what a place inherits of a template.
func (p Policy) take(at place, role taint.Role, template Content, label func(key string) Why) Content {
	return Content{
		Labels: at.labels(template.Labels, label), Annotations: at.annotations(template.Annotations, declared),
		Taints: p.typed(at, role, template.Taints), Fields: at.fields(template.Fields),
	}
}

// declared returns all that the section declares.
func (s Section) declared() Content {
	return Content{
		Labels:      mergeMaps(s.Class.Labels, s.Topology.Labels),
		Annotations: mergeMaps(s.Class.Annotations, s.Topology.Annotations),
		Taints:      instead(s.Topology.Taints, s.Class.Taints),
		Fields:      s.Topology.Fields.or(s.Class.Fields),
	}
}

// sectionList is a field of a topology and of a ClusterClass in which sections are.
type sectionList string

const (
	controlPlane       sectionList = "controlPlane"
	machineDeployments sectionList = "machineDeployments"
	machinePools       sectionList = "machinePools"
)

// parts are the sections of a ClusterClass or of a topology.
type parts map[sectionList][]Part

func (p parts) add(list sectionList, name, class string, metadata clusterv1.ObjectMeta, spec clusterv1.MachineSpec) {
	p[list] = append(p[list], Part{Name: name, Class: class, Content: contentOf(&clusterv1.MachineTemplateSpec{ObjectMeta: metadata, Spec: spec})})
}

func partsOfClass(class *clusterv1.ClusterClass) parts {
	all, cp := parts{}, &class.Spec.ControlPlane
	all.add(controlPlane, "", "", cp.Metadata, specOfControlPlaneClass(cp))
	all[controlPlane][0].OfMachines = HasMachines(class)
	for i := range class.Spec.Workers.MachineDeployments {
		s := &class.Spec.Workers.MachineDeployments[i]
		all.add(machineDeployments, "", s.Class, s.Metadata, specOfMachineDeploymentClass(s))
	}
	for i := range class.Spec.Workers.MachinePools {
		s := &class.Spec.Workers.MachinePools[i]
		all.add(machinePools, "", s.Class, s.Metadata, specOfMachinePoolClass(s))
	}
	return all
}

func partsOfTopology(topology *clusterv1.Topology) parts {
	all, cp := parts{}, &topology.ControlPlane
	all.add(controlPlane, "", "", cp.Metadata, specOfControlPlaneTopology(cp))
	for i := range topology.Workers.MachineDeployments {
		s := &topology.Workers.MachineDeployments[i]
		all.add(machineDeployments, s.Name, s.Class, s.Metadata, specOfMachineDeploymentTopology(s))
	}
	for i := range topology.Workers.MachinePools {
		s := &topology.Workers.MachinePools[i]
		all.add(machinePools, s.Name, s.Class, s.Metadata, specOfMachinePoolTopology(s))
	}
	return all
}

// HasMachines reports whether the control planes of a ClusterClass consist of Machines.
func HasMachines(class *clusterv1.ClusterClass) bool {
	return class.Spec.ControlPlane.MachineInfrastructure.TemplateRef.IsDefined()
}

// SectionOf returns what is declared for a control plane, MachineDeployment or MachinePool; nil if the Cluster's topology does not
// manage it, or if its section or that of the class is missing: then it is not known what they declare.
func SectionOf(cluster *clusterv1.Cluster, class *clusterv1.ClusterClass, object metav1.Object) *Section {
	labels := object.GetLabels()
	if !cluster.Spec.Topology.IsDefined() || labels[clusterv1.ClusterNameLabel] != cluster.Name || !has(labels, clusterv1.ClusterTopologyOwnedLabel) {
		return nil
	}
	var list sectionList
	var name string
	switch o := object.(type) {
	case *ControlPlane: // Cluster API creates it before the Cluster refers to it
		if ref := cluster.Spec.ControlPlaneRef; ref.Name != "" && (ref.Name != o.Name || ref.GroupKind() != o.GroupVersionKind().GroupKind()) {
			return nil
		}
		list = controlPlane
	case *clusterv1.MachineDeployment:
		list, name = machineDeployments, labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel]
	case *clusterv1.MachinePool:
		list, name = machinePools, labels[clusterv1.ClusterTopologyMachinePoolNameLabel]
	}
	inTopology, inClass := partsOfTopology(&cluster.Spec.Topology)[list], partsOfClass(class)[list]
	t := slices.IndexFunc(inTopology, func(s Part) bool { return s.Name == name && (name != "" || list == controlPlane) })
	if t < 0 {
		return nil
	}
	c := slices.IndexFunc(inClass, func(s Part) bool { return s.Class == inTopology[t].Class })
	if c < 0 {
		return nil
	}
	return &Section{Class: inClass[c], Topology: inTopology[t], list: list}
}

// Declarations says what the section declares, and where: in the Cluster, and in the ClusterClass if the Cluster does not replace
// it.
func (s Section) Declarations(cluster *clusterv1.Cluster, class *clusterv1.ClusterClass) []Declaration {
	inClass := s.Class
	inClass.Annotations = filter(inClass.Annotations, func(name string) bool { return !has(s.Topology.Annotations, name) })
	if s.Topology.Taints != nil {
		inClass.Taints = nil
	}
	if s.Topology.Fields.ReadinessGates != nil {
		inClass.Fields.ReadinessGates = nil
	}
	return []Declaration{s.list.inTopology(cluster, s.Topology), s.list.inClass(class, inClass)}
}

// DeclarationsOfCluster says what the topology of a Cluster declares, section by section.
func DeclarationsOfCluster(cluster *clusterv1.Cluster) []Declaration {
	if !cluster.Spec.Topology.IsDefined() {
		return nil
	}
	return partsOfTopology(&cluster.Spec.Topology).each(func(l sectionList, s Part) Declaration { return l.inTopology(cluster, s) })
}

// DeclarationsOfClass says what a ClusterClass declares, section by section.
func DeclarationsOfClass(class *clusterv1.ClusterClass) []Declaration {
	return partsOfClass(class).each(func(l sectionList, s Part) Declaration { return l.inClass(class, s) })
}

func (p parts) each(of func(sectionList, Part) Declaration) []Declaration {
	var all []Declaration
	for _, list := range []sectionList{controlPlane, machineDeployments, machinePools} {
		for _, part := range p[list] {
			all = append(all, of(list, part))
		}
	}
	return all
}

func (l sectionList) inTopology(cluster *clusterv1.Cluster, s Part) Declaration {
	return l.declaration(Ref{"Cluster", cluster}, s, s.Name, "spec", "topology")
}

func (l sectionList) inClass(class *clusterv1.ClusterClass, s Part) Declaration {
	return l.declaration(Ref{"ClusterClass", class}, s, s.Class, "spec")
}

// declaration is what a section declares; an item of a list has a name.
func (l sectionList) declaration(of Ref, s Part, name string, above ...string) Declaration {
	at := below(above, "workers", fmt.Sprintf("%s[%s]", l, name))
	if l == controlPlane {
		at = below(above, string(l))
	}
	return Declaration{Ref: of, Content: s.Content, Annotates: l == machinePools, Paths: pathsIn(below(at, "metadata"), at)}
}
