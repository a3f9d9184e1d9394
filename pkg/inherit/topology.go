// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"errors"
	"maps"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Section is what a ClusterClass and the topology of a Cluster declare for one object. Labels and annotations of both are merged,
// and the Cluster's win. Everything else that the Cluster declares replaces what the ClusterClass declares.
type Section struct {
	Class, Topology Part
	list            sectionList
}

// ControlPlane is rule 1: what a control plane inherits. As in Cluster API, it declares metadata for its Machines only if the
// ClusterClass says that it consists of Machines. The error lists taints that had to be left out.
func (p Policy) ControlPlane(s Section) (Object, error) {
	declared := s.content()
	metadata := Content{Labels: declared.Labels, Annotations: declared.Annotations}
	taints, err := taint.Usable(taint.ControlPlane, p.typed(declared.Taints))
	template := Content{Taints: taints, Fields: declared.Fields}
	if s.Class.OfMachines {
		template.Labels, template.Annotations = metadata.Labels, metadata.Annotations
	}
	return Object{Top: metadata, Template: &template}, err
}

// MachineDeployment is rule 2: what a MachineDeployment inherits. The error lists taints that had to be left out.
func (p Policy) MachineDeployment(s Section, md *clusterv1.MachineDeployment) (Object, error) {
	declared := s.content()
	declared.Labels = withoutSelected(declared.Labels, md.Spec.Selector)
	var err error
	declared.Taints, err = taint.Usable(taint.Worker, p.typed(declared.Taints))
	return Object{Top: Content{Labels: declared.Labels, Annotations: declared.Annotations}, Template: &declared}, err
}

// MachinePool is rule 3: what a MachinePool inherits. Cluster API refuses typed taints there even with its feature gate on, so they
// are declared by annotation. The error lists taints that had to be left out.
func (Policy) MachinePool(s Section) (Object, error) {
	template := s.content()
	top := Content{Labels: template.Labels, Annotations: template.Annotations}
	var err error
	template.Annotations, err = annotate(template.Annotations, template.Taints)
	template.Taints = nil
	return Object{Top: top, Template: &template}, err
}

// content returns all that the section declares.
func (s Section) content() Content {
	declared := s.declared()
	declared.Labels = filter(declared.Labels, func(key string) bool { return droppedSection(key) == "" })
	declared.Annotations = inheritable(declared.Annotations)
	return declared
}

// declared returns all that the section declares, with what no rule propagates.
func (s Section) declared() Content {
	return Content{
		Labels:      mergeMaps(s.Class.Labels, s.Topology.Labels),
		Annotations: mergeMaps(s.Class.Annotations, s.Topology.Annotations),
		Taints:      instead(s.Topology.Taints, s.Class.Taints),
		Fields:      s.Topology.Fields.or(s.Class.Fields),
	}
}

// whyNot says why a section does not hand down an entry that it declares, unless it is a taint.
func (s Section) whyNot(e Entry) Dropped {
	declared := s.declared()
	switch {
	case !declared.declares(e):
		return DropElsewhere
	case e.What == labelKey:
		return droppedSection(e.Name)
	case e.What == annotationKey:
		return droppedKey(e.Name)
	}
	return ""
}

// WhyNotControlPlane says why rule 1 does not bring an entry that the section declares. Own says that the question is about the
// control plane's own metadata.
func (p Policy) WhyNotControlPlane(s Section, e Entry) Dropped {
	metadata := e.What == labelKey || e.What == annotationKey
	if e.Own != metadata && e.Own || !e.Own && metadata && !s.Class.OfMachines {
		return DropElsewhere
	}
	if e.What == taintKey {
		return p.droppedTyped(taint.ControlPlane, s.declared().Taints, e.Name)
	}
	return s.whyNot(e)
}

// WhyNotMachineDeployment says why rule 2 does not bring an entry that the section declares. Own says that the question is about the
// MachineDeployment's own metadata.
func (p Policy) WhyNotMachineDeployment(s Section, md *clusterv1.MachineDeployment, e Entry) Dropped {
	switch why := s.whyNot(e); {
	case e.Own && e.What != labelKey && e.What != annotationKey:
		return DropElsewhere
	case e.What == taintKey:
		return p.droppedTyped(taint.Worker, s.declared().Taints, e.Name)
	case why == "" && e.What == labelKey:
		return droppedSelected(e.Name, selectedBy(md.Spec.Selector))
	default:
		return why
	}
}

// WhyNotMachinePool says why rule 3 does not bring an entry that the section declares. Own says that the question is about the
// MachinePool's own metadata. Typed taints become annotations.
func (p Policy) WhyNotMachinePool(s Section, e Entry) Dropped {
	switch {
	case e.Own && e.What != labelKey && e.What != annotationKey:
		return DropElsewhere
	case e.What != taintKey:
		return s.whyNot(e)
	}
	if why := droppedTaint(taint.Worker, s.declared().Taints, e.Name); why != "" {
		return why
	}
	return DropTaints
}

// instead returns the first list if it is declared, even if empty, and the second otherwise.
func instead[T any](list, otherwise []T) []T {
	if list != nil {
		return list
	}
	return otherwise
}

// TopologyLabels returns the labels by which Cluster API's topology controller finds its objects.
func TopologyLabels() []string {
	return []string{
		clusterv1.ClusterTopologyOwnedLabel, clusterv1.ClusterTopologyMachineDeploymentNameLabel,
		clusterv1.ClusterTopologyMachinePoolNameLabel,
	}
}

// managed reports whether Cluster API's topology controller finds its objects by this label.
func managed(key string) bool {
	return slices.Contains(TopologyLabels(), key)
}

// annotate adds the typed taints to the annotations. They win over taints with the same key and effect that the annotations declare.
func annotate(annotations map[string]string, typed []clusterv1.MachineTaint) (map[string]string, error) {
	typed, typedErr := taint.Usable(taint.Worker, typed)
	if len(typed) == 0 {
		return annotations, typedErr
	}
	annotated, parseErr := taint.FromAnnotations(annotations)
	all := maps.Clone(annotations)
	delete(all, taint.AlwaysAnnotation)
	delete(all, taint.InitializeAnnotation)
	maps.Copy(all, taint.ToAnnotations(taint.Merge(typed, annotated)))
	return all, errors.Join(typedErr, parseErr)
}
