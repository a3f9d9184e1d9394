// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// overridden reports what a Cluster's topology declares in place of its ClusterClass, if a file has that too.
func (l *linter) overridden(s *subject) {
	cluster, ok := s.chained.(*clusterv1.Cluster)
	if !ok || !cluster.Spec.Topology.IsDefined() || l.world.classOf(cluster) == nil {
		return
	}
	class := l.world.classOf(cluster)
	for _, object := range l.world.sections(cluster) {
		section := inherit.SectionOf(cluster, class, ofContract(object))
		if section == nil {
			continue
		}
		declared := section.Declarations(cluster, class)
		l.replaced(s, *section, declared[0], declared[1])
	}
}

// ofContract returns a control plane in the form of the contract, and other objects as they are.
func ofContract(object client.Object) client.Object {
	if object.GetObjectKind().GroupVersionKind().Group != inherit.ControlPlaneGroup {
		return object
	}
	cp := &inherit.ControlPlane{}
	if copyInto(object, cp) != nil {
		return object
	}
	return cp
}

// replaced reports each entry of the class's section that the topology's replaces.
func (l *linter) replaced(s *subject, section inherit.Section, topology, class inherit.Declaration) {
	over := compare.Overridden(section)
	for _, e := range over.Entries() {
		if e.What == "taint" && !over.TypedTaint(e.Name) {
			continue // its annotation is an entry as well
		}
		path := inherit.Sources{All: []inherit.Declaration{topology}}.Of(e).Field
		if e.What == label || e.What == annotation {
			path = fieldOf(path, e.Name)
		}
		was, _ := over.Value(e)
		switch now, declared := topology.Value(e); {
		case e.What == annotation && (e.Name == taint.AlwaysAnnotation || e.Name == taint.InitializeAnnotation):
			l.taintsReplaced(s, path, e.Name, over, topology, class)
		case declared:
			l.found(valueReplaced, s, path, "",
				"%s %s is %q here and %q in %s: this one counts", e.What, e.Name, now, was, nameOf(class.Kind, class.Object))
		case e.What == "taint", e.What == "field":
			l.found(listReplaced, s, path, "Repeat in this list what should stay.",
				"%s %s of %s is lost: this list replaces that of the class", what(e), e.Name, nameOf(class.Kind, class.Object))
		}
	}
}

func what(e inherit.Entry) string {
	if e.What == "field" {
		return "readiness gate"
	}
	return e.What
}

// taintsReplaced reports taints that are lost because both declare the same annotation.
func (l *linter) taintsReplaced(s *subject, path, name string, over inherit.Content, topology, class inherit.Declaration) {
	stay := map[taint.ID]bool{}
	for _, t := range annotated(topology, name) {
		stay[taint.MachineID(t)] = true
	}
	var lost []string
	for _, t := range annotated(inherit.Declaration{Content: over}, name) {
		if !stay[taint.MachineID(t)] {
			lost = append(lost, taint.MachineID(t).String())
		}
	}
	if len(lost) == 0 {
		l.found(valueReplaced, s, path, "", "annotation %s is %q here and %q in %s: this one counts", name, topology.Annotations[name],
			over.Annotations[name], nameOf(class.Kind, class.Object))
		return
	}
	slices.Sort(lost)
	l.found(listReplaced, s, path, fmt.Sprintf("Repeat in this annotation what should stay: %s.", over.Annotations[name]),
		"taint %s of %s is lost: this annotation replaces that of the class", strings.Join(lost, ", "), nameOf(class.Kind, class.Object))
}
