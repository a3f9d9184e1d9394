// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/manifest"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// fillIn is the advice for templates.
const fillIn = "Fill in its variables first, as clusterctl generate does."

// itself finds what is wrong with an object, whatever is above and below it.
func (l *linter) itself(s *subject) {
	if name, line := s.Duplicate(); line > 0 {
		l.found(duplicateKey, s, "", "Remove one of them. If another object begins here, add a line --- before it.",
			"key %s is there twice, and only the last counts", name)
		l.findings[len(l.findings)-1].Line = line
	}
	for _, err := range taint.ValidateCarrier(s.carrier, nil, s.isControlPlane()) {
		l.refused(s, err)
	}
	if s.chained == nil {
		return
	}
	if s.GetKind() == "MachinePool" && len(s.carrier.Spec.Template.Spec.Taints) > 0 {
		l.found(typedInPool, s, "spec.template.spec.taints", "Declare them with the annotations "+taint.AlwaysAnnotation+" and "+
			taint.InitializeAnnotation+" of spec.template.metadata.", "Cluster API refuses typed taints in a MachinePool")
	}
	l.skipped(s)
	l.ownMetadata(s)
	l.selector(s)
}

// refused reports a taint that the validating webhook refuses.
func (l *linter) refused(s *subject, err *field.Error) {
	path := err.Field
	if value := fmt.Sprint(err.BadValue); manifest.Placeholder(value) {
		l.found(unfilledTemplate, s, path, fillIn, "the taint %s was not judged", value)
		return
	}
	l.found(refusedTaint, s, path, "Correct or remove the taint: Heirloom's webhook refuses the object.", "%s", err.ErrorBody())
}

// skipped reports an object that inherits nothing because of itself.
func (l *linter) skipped(s *subject) {
	policy := l.Policy
	switch s.chained.(type) {
	case *clusterv1.ClusterClass:
		return
	case *clusterv1.Cluster:
		policy.WatchFilter = "" // objects carry its label, and their Cluster need not
	}
	why, skipped := policy.Skips(s.chained, nil)
	if cluster, ok := s.chained.(*clusterv1.Cluster); ok && !skipped && inherit.Paused(cluster) {
		why, skipped = inherit.IsPaused, true
	}
	what := "it inherits nothing"
	if s.GetKind() == "Cluster" {
		what = "nothing that belongs to it inherits"
	}
	if skipped && why != inherit.IsDeleted {
		l.found(inheritsNothing, s, "metadata", "", "%s: %s", what, why)
	}
}

// ownMetadata reports what the object's own metadata declares for Nodes, and what reaches nothing. What the template has too is there
// because a topology, or the author of the object, put it in both places.
func (l *linter) ownMetadata(s *subject) {
	if _, ok := s.chained.(*clusterv1.Machine); ok {
		return // a Node inherits from it
	}
	template, _ := s.template()
	for _, name := range slices.Sorted(maps.Keys(s.GetLabels())) {
		k, path := key{label, name}, fieldOf("metadata.labels", name)
		switch {
		case has(template.Labels, name):
		case notOnNode(l.Policy, k) == "":
			l.found(wrongPlace, s, path, "Move it to "+s.placeFor("labels")+".", "label %s is for Nodes, but reaches none from here", name)
		case s.GetKind() == "MachineDeployment" && notOnMachine(k) == "" && !ofClusterAPI(name) && notOnNode(l.Policy, k) == inherit.DropOutside:
			l.found(reachesNothing, s, path, "If Machines need it, declare it in "+s.placeFor("labels")+".",
				"label %s reaches nothing: only the template's labels are inherited", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.GetAnnotations())) {
		switch path := fieldOf("metadata.annotations", name); {
		case has(template.Annotations, name):
		case name == taint.AlwaysAnnotation, name == taint.InitializeAnnotation:
			l.found(wrongPlace, s, path, "Move it to "+s.placeFor("annotations")+".",
				"annotation %s declares taints, but reaches no Machine from here", name)
		case notOnNode(l.Policy, key{annotation, name}) == "":
			l.found(wrongPlace, s, path, "Move it to "+s.placeFor("annotations")+".", "annotation %s is for Nodes, but reaches none from here", name)
		}
	}
}

// template returns what the object declares for Machines, and the path of its metadata.
func (s *subject) template() (inherit.Content, string) {
	var has inherit.Object
	switch o := s.chained.(type) {
	case *clusterv1.MachineDeployment:
		has = inherit.OfMachineDeployment(o)
	case *clusterv1.MachineSet:
		has = inherit.OfMachineSet(o)
	case *clusterv1.MachinePool:
		has = inherit.OfMachinePool(o)
	case *unstructured.Unstructured:
		metadata := s.carrier.Spec.MachineTemplate.Metadata
		return inherit.Content{Labels: metadata.Labels, Annotations: metadata.Annotations}, "spec.machineTemplate.metadata"
	default:
		return inherit.Content{}, ""
	}
	return *has.Template, strings.Join(has.Layout.Template.Metadata, ".")
}

// placeFor says where the object declares labels or annotations for Machines.
func (s *subject) placeFor(what string) string {
	switch s.chained.(type) {
	case *clusterv1.Cluster:
		return "metadata." + what + " of a section of spec.topology"
	case *clusterv1.ClusterClass:
		return "metadata." + what + " of a section of spec"
	}
	_, where := s.template()
	return where + "." + what
}

// selector reports labels for Nodes that a selector uses.
func (l *linter) selector(s *subject) {
	used := selectedBy(s.chained)
	template, where := s.template()
	for _, name := range slices.Sorted(maps.Keys(template.Labels)) {
		if used.Has(name) && notOnNode(l.Policy, key{label, name}) == "" {
			l.found(usedBySelector, s, fieldOf(where+".labels", name),
				"Select by cluster.x-k8s.io/deployment-name instead: a selector cannot be changed, so this takes a new "+s.GetKind()+".",
				"label %s is for Nodes and used by the selector: Heirloom leaves it alone, and you cannot change its value", name)
		}
	}
}

// selectedBy returns the keys that the object's selector uses.
func selectedBy(object any) sets.Set[string] {
	var selector metav1.LabelSelector
	switch o := object.(type) {
	case *clusterv1.MachineDeployment:
		selector = o.Spec.Selector
	case *clusterv1.MachineSet:
		selector = o.Spec.Selector
	}
	used := sets.KeySet(selector.MatchLabels)
	for _, requirement := range selector.MatchExpressions {
		used.Insert(requirement.Key)
	}
	return used
}

// fieldOf is the path of an entry of a map.
func fieldOf(path, name string) string { return path + "[" + name + "]" }
