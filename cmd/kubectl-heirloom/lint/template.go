// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// templateReplaced reports what the template of a class's control plane declares for Machines, and the class or a topology of it
// replaces.
func (l *linter) templateReplaced(s *subject) {
	class, ok := s.chained.(*clusterv1.ClusterClass)
	if !ok || !inherit.HasMachines(class) {
		return
	}
	template := l.controlPlaneTemplate(s)
	if template == nil {
		return
	}
	metadata := template.carrier.Spec.Template.Spec.MachineTemplate.Metadata
	for _, d := range l.aboveControlPlane(class) {
		const path = "spec.template.spec.machineTemplate.metadata"
		l.mapReplaced(template, label, path+".labels", metadata.Labels, d, d.Labels)
		l.mapReplaced(template, annotation, path+".annotations", metadata.Annotations, d, d.Annotations)
	}
}

func (l *linter) mapReplaced(s *subject, sort, path string, here map[string]string, by inherit.Declaration, instead map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(here)) {
		if now, ok := instead[name]; ok && now != here[name] {
			l.found(replacedTemplate, s, fieldOf(path, name), "", "%s %s is %q here and %q in %s: that one counts", sort, name, here[name], now,
				nameOf(by.Kind, by.Object))
		}
	}
}

// aboveControlPlane is what the class and the topologies of it declare for control planes.
func (l *linter) aboveControlPlane(class *clusterv1.ClusterClass) []inherit.Declaration {
	var all []inherit.Declaration
	for _, s := range l.subjects {
		cluster, ok := s.chained.(*clusterv1.Cluster)
		if !ok || !cluster.Spec.Topology.IsDefined() || l.world.classOf(cluster) != class {
			continue
		}
		if section := inherit.SectionOf(cluster, class, ofContract(l.world.controlPlaneOf(cluster))); section != nil {
			all = append(all, section.Declarations(cluster, class)...)
		}
	}
	if all == nil {
		metadata := class.Spec.ControlPlane.Metadata
		all = []inherit.Declaration{{
			Ref: inherit.Ref{Kind: "ClusterClass", Object: class}, Content: inherit.Content{Labels: metadata.Labels, Annotations: metadata.Annotations},
		}}
	}
	return all
}

// controlPlaneTemplate returns the template that a ClusterClass refers to, in the version of either, if a file has it.
func (l *linter) controlPlaneTemplate(class *subject) *subject {
	name, _, _ := unstructured.NestedString(class.Object.Object, "spec", "controlPlane", "templateRef", "name")
	before, _, _ := unstructured.NestedString(class.Object.Object, "spec", "controlPlane", "ref", "name")
	name = cmp.Or(name, before)
	i := slices.IndexFunc(l.subjects, func(s *subject) bool {
		return s.isControlPlane() && inherit.IsTemplate(s.GetKind()) && s.GetName() == name && s.GetNamespace() == class.GetNamespace()
	})
	if i < 0 {
		return nil
	}
	return l.subjects[i]
}
