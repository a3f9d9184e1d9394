// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Section holds the declarations of a ClusterClass and of the topology of a Cluster for an object. Labels and annotations of both are
// merged, and the Cluster's win. All other declarations of the Cluster replace the declarations of the ClusterClass.
type Section struct {
	Class, Topology Part
	list            string // the field of workers in which the section is; empty for the control plane
	// Patch is the first patch of the ClusterClass that may change the control plane's own metadata, or empty: PatchOfControlPlane.
	Patch string
}

// The lists of sections of workers.
const (
	machineDeployments = "machineDeployments"
	machinePools       = "machinePools"
)

// Part is a section of a ClusterClass or of a topology, for the objects of a kind and a class.
type Part struct {
	Name string // the name in a topology, the class in a ClusterClass
	Content
	// OfMachines says that a ClusterClass's control plane consists of Machines.
	OfMachines bool
}

// ControlPlane implements rule 1: it returns the content that a control plane inherits. As in Cluster API, the control plane gets metadata
// for its Machines only if the ClusterClass says that it consists of Machines. If a patch of the ClusterClass may change the control plane's
// own metadata, only Cluster API knows the result: Heirloom adds nothing there.
func (p Policy) ControlPlane(s Section, cp Object) (Object, Drops) {
	top := s.declared()
	template := top
	if !s.Class.OfMachines {
		template.Labels, template.Annotations = nil, nil
	}
	var out Drops
	if s.Patch != "" {
		top.Labels, top.Annotations = cp.top(&out).patched(labelKey, top.Labels), cp.top(&out).patched(annotationKey, top.Annotations)
	}
	return p.handDown(cp, &out, taint.ControlPlane, top, template, ofTemplate(true)), out
}

// MachineDeployment implements rule 2: it returns the content that a MachineDeployment inherits.
func (p Policy) MachineDeployment(s Section, md *clusterv1.MachineDeployment) (Object, Drops) {
	var out Drops
	declared := s.declared()
	return p.handDown(OfMachineDeployment(md), &out, taint.Worker, declared, declared, ofTemplate(true, md.Spec.Selector)), out
}

// MachinePool implements rule 3: it returns the content that a MachinePool inherits. Cluster API refuses typed taints in a MachinePool even
// with its feature gate on, so they become annotations, and win over taints that annotations declare.
func (p Policy) MachinePool(s Section, mp *clusterv1.MachinePool) (Object, Drops) {
	var out Drops
	top, child := s.declared(), OfMachinePool(mp)
	template := top
	template.Taints = nil
	at := child.template(&out)
	if typed := at.usable(taint.Worker, top.Taints); len(typed) > 0 {
		rest := filter(top.Annotations, func(key string) bool { return key != taint.UntilAnnotation })
		annotated, unreadable := taint.FromAnnotations(rest)
		for name, problem := range unreadable {
			at.drop(annotationKey, name, "", "", problem.Error())
		}
		template.Annotations = filter(top.Annotations, func(key string) bool { return !declaresTaints(key) || !has(rest, key) })
		maps.Copy(template.Annotations, taint.ToAnnotations(taint.Merge(typed, annotated)))
		for _, t := range typed {
			at.drop(taintKey, taint.MachineID(t).String(), DropTaints, "", "")
		}
	}
	return p.handDown(child, &out, taint.Worker, top, template, ofTemplate(true)), out
}

// patched leaves out all labels or annotations, because a patch may change them.
func (p place) patched(what string, declared map[string]string) map[string]string {
	return p.keys(what, declared, func(string) Why { return DropPatched })
}

// TemplateMetadata is the path of the metadata that Cluster API gives the objects of a template, in a patch of the template.
const TemplateMetadata = "/spec/template/metadata"

// PatchOfControlPlane returns the name of the first patch of a ClusterClass that may change the control plane's own metadata at a path, or
// "": of an extension, or a JSON patch of its template at, below or above the path. Cluster API v1.14 and later patch the metadata of all
// templates (pull request 13924); MachineDeployments and MachinePools have none.
func PatchOfControlPlane(class *clusterv1.ClusterClass, path string) string {
	touches := func(p clusterv1.JSONPatch) bool {
		return strings.HasPrefix(p.Path+"/", path+"/") || strings.HasPrefix(path+"/", p.Path+"/")
	}
	for _, patch := range class.Spec.Patches {
		if patch.External != nil && patch.External.GeneratePatchesExtension != "" ||
			slices.ContainsFunc(patch.Definitions, func(d clusterv1.PatchDefinition) bool {
				return SelectsControlPlane(class, d.Selector) && slices.ContainsFunc(d.JSONPatches, touches)
			}) {
			return patch.Name
		}
	}
	return ""
}

// SelectsControlPlane reports whether a patch of a ClusterClass is for the template of its control plane.
func SelectsControlPlane(class *clusterv1.ClusterClass, s clusterv1.PatchSelector) bool {
	return ptr.Deref(s.MatchResources.ControlPlane, false) && s.Kind == class.Spec.ControlPlane.TemplateRef.Kind
}

// PatchesRead returns the part of a ClusterClass's patches that PatchOfControlPlane reads.
func PatchesRead(patches []clusterv1.ClusterClassPatch) (read []clusterv1.ClusterClassPatch) {
	for _, patch := range patches {
		kept := clusterv1.ClusterClassPatch{Name: patch.Name}
		if patch.External != nil {
			kept.External = &clusterv1.ExternalPatchDefinition{GeneratePatchesExtension: patch.External.GeneratePatchesExtension}
		}
		for _, d := range patch.Definitions {
			paths := clusterv1.PatchDefinition{Selector: d.Selector}
			for _, p := range d.JSONPatches {
				paths.JSONPatches = append(paths.JSONPatches, clusterv1.JSONPatch{Path: p.Path})
			}
			kept.Definitions = append(kept.Definitions, paths)
		}
		read = append(read, kept)
	}
	return read
}

// handDown returns the content that a child with a Machine template inherits: metadata at its top, and all content of its template.
func (p Policy) handDown(child Object, out *Drops, role taint.Role, top, template Content, label func(key string) Why) Object {
	inherited := p.take(child.template(out), role, template, label)
	return Object{Top: child.top(out).metadata(top, label), Template: &inherited}
}

// take returns the content that a place inherits from a template.
func (p Policy) take(at place, role taint.Role, template Content, label func(key string) Why) Content {
	taken := at.metadata(template, label)
	taken.Taints, taken.Fields = p.typed(at, role, template.Taints), at.fields(template.Fields)
	return taken
}

// metadata returns the labels and annotations that a place inherits from an owner's content.
func (p place) metadata(from Content, label func(key string) Why) Content {
	return Content{Labels: p.keys(labelKey, from.Labels, label), Annotations: p.keys(annotationKey, from.Annotations, declared)}
}

// declared returns the merged declarations of the section.
func (s Section) declared() Content {
	return Content{
		Labels:      mergeMaps(s.Class.Labels, s.Topology.Labels),
		Annotations: mergeMaps(s.Class.Annotations, s.Topology.Annotations),
		Taints:      instead(s.Topology.Taints, s.Class.Taints),
		Fields:      s.Topology.Fields.or(s.Class.Fields),
	}
}

// HasMachines reports whether the control planes of a ClusterClass consist of Machines.
func HasMachines(class *clusterv1.ClusterClass) bool {
	return class.Spec.ControlPlane.MachineInfrastructure.TemplateRef.IsDefined()
}

// SectionOf returns the section for a control plane, MachineDeployment or MachinePool. It is nil if the Cluster's topology does not manage
// the object, or if the section in the topology or in the class is missing: then the declarations are not known.
func SectionOf(cluster *clusterv1.Cluster, class *clusterv1.ClusterClass, object metav1.Object) *Section {
	labels := object.GetLabels()
	if !cluster.Spec.Topology.IsDefined() || labels[clusterv1.ClusterNameLabel] != cluster.Name || !has(labels, clusterv1.ClusterTopologyOwnedLabel) {
		return nil
	}
	switch o := object.(type) {
	case *ControlPlane: // Cluster API creates it before the Cluster refers to it
		if ref := cluster.Spec.ControlPlaneRef; ref.Name == "" || ref.Name == o.Name && ref.GroupKind() == o.GroupVersionKind().GroupKind() {
			return sectionOfControlPlane(cluster.Spec.Topology.ControlPlane, class)
		}
	case *clusterv1.MachineDeployment:
		name := labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel]
		return sectionOfMachineDeployment(name, &cluster.Spec.Topology.Workers, &class.Spec.Workers)
	case *clusterv1.MachinePool:
		name := labels[clusterv1.ClusterTopologyMachinePoolNameLabel]
		return sectionOfMachinePool(name, &cluster.Spec.Topology.Workers, &class.Spec.Workers)
	}
	return nil
}

// Declarations returns the declarations of the section: of the Cluster, and of the ClusterClass if the Cluster does not replace them.
func (s Section) Declarations(cluster *clusterv1.Cluster, class *clusterv1.ClusterClass) []Declaration {
	inClass := s.Class
	inClass.Annotations = filter(inClass.Annotations, func(name string) bool { return !has(s.Topology.Annotations, name) })
	if s.Topology.Taints != nil {
		inClass.Taints = nil
	}
	if s.Topology.Fields.ReadinessGates != nil {
		inClass.Fields.ReadinessGates = nil
	}
	return []Declaration{
		s.declaration(Ref{"Cluster", cluster}, s.Topology, "spec", "topology"), s.declaration(Ref{"ClusterClass", class}, inClass, "spec"),
	}
}

// declaration returns the declarations of a part, with their paths; an item of a list has a name.
func (s Section) declaration(of Ref, part Part, above ...string) Declaration {
	at := below(above, "controlPlane")
	if s.list != "" {
		at = below(above, "workers", fmt.Sprintf("%s[%s]", s.list, part.Name))
	}
	return Declaration{Ref: of, Content: part.Content, Annotates: s.list == machinePools, Paths: pathsIn(below(at, "metadata"), at)}
}
