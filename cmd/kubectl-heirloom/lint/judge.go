// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/manifest"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// judge compares the declarations for the Machines of an object, in the object itself and in the topology above it, with the entries that
// their Nodes get.
func (l *linter) judge(ctx context.Context, object client.Object) error {
	kind, _ := owners.KindOf(object)
	has, err := kind.Content(ctx, l.chain, object)
	decided, evaluateErr := kind.Evaluate(ctx, l.chain, object, l.Policy)
	if err := errors.Join(err, evaluateErr); err != nil {
		return err
	}
	own := inherit.Declaration{Ref: inherit.Ref{Kind: object.GetObjectKind().GroupVersionKind().Kind, Object: object}, Content: has.Top, Paths: has.Layout.Top}
	m, itself := object.(*clusterv1.Machine)
	var toMachine inherit.Drops
	if own.Itself = itself; !itself {
		own.Content, own.Paths, m = ptr.Deref(has.Template, inherit.Content{}), has.Layout.Template, &clusterv1.Machine{}
		template := &inherit.Template{Content: has.Effective(decided.Desired)}
		template.Fields = own.Fields
		switch o := object.(type) {
		case *clusterv1.MachineDeployment:
			template.Selector = o.Spec.Selector
		case *clusterv1.MachineSet:
			template.Selector = o.Spec.Selector
		case *inherit.ControlPlane:
			m.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
		}
		_, toMachine = l.Policy.MachineFrom(template, m)
		m = l.Policy.EffectiveMachine(template, m)
		if s := l.world.file(object); s != nil {
			l.misplaced(s, own.Content, strings.Join(own.Paths.Metadata, "."))
		}
	}
	cluster, _ := l.chain.Cluster(ctx, object.GetNamespace(), owners.ClusterName(object)) // reads of a world never fail
	class, _ := l.chain.ClusterClass(ctx, cluster)
	plan := asNew(l.Policy.Of(cluster, class), m)
	node, toNode := plan.Result, plan.LeftOut
	declared := append(l.topology(ctx, object), own)
	l.registered(machines{object, cluster, class, declared}, m, node)
	_, noRoom := inherit.Fit(has, decided.Desired, func() inherit.Object { return has }, nil)
	l.leftOut(declared, errors.Join(decided.Problems(), noRoom, toMachine.Problems(), toNode.Problems()))
	dropped := slices.Concat(toNode, toMachine, decided.Dropped) // the reason of the last rule on the way counts
	for _, d := range declared {
		if s := l.world.file(d.Object); s != nil {
			l.declaration(s, d, inherit.Content{Labels: node.Labels, Annotations: node.Annotations}, dropped)
			l.twice(s, d, declared)
		}
	}
	l.gates(object, declared)
	return nil
}

// gates reports start-up gates of an autoscaled object whose taints cluster-autoscaler does not take for start-up taints.
func (l *linter) gates(object client.Object, declared []inherit.Declaration) {
	annotations := maps.Clone(object.GetAnnotations())
	for _, d := range slices.Backward(declared) {
		annotations = labels.Merge(annotations, d.Annotations)
	}
	if !inherit.Autoscaled(annotations) {
		return
	}
	for _, d := range declared {
		s := l.world.file(d.Object)
		for id := range taint.Gates(d.Annotations) {
			isStartup := slices.ContainsFunc(startupPrefixes, func(prefix string) bool { return strings.HasPrefix(id.Key, prefix) })
			if s != nil && !isStartup && id.Effect != corev1.TaintEffectPreferNoSchedule {
				l.found(gateForAutoscaler, s, pathOf(d, inherit.Entry{What: "annotation", Name: taint.UntilAnnotation}),
					"Begin the key with "+startupPrefixes[0]+", or name it in cluster-autoscaler's flag --startup-taint.",
					"cluster-autoscaler scales this pool, and takes the taint %s of the start-up gate for permanent: it adds no Nodes for Pods that do not tolerate the taint", id)
			}
		}
	}
}

// startupPrefixes begin the keys of taints that cluster-autoscaler expects to go once a Node is ready.
var startupPrefixes = []string{"startup-taint.cluster-autoscaler.kubernetes.io/", "ignore-taint.cluster-autoscaler.kubernetes.io/"}

// topology returns the declarations of a topology for an object, and reports the lists of the class that the Cluster replaces.
func (l *linter) topology(ctx context.Context, object client.Object) []inherit.Declaration {
	cluster, _ := l.chain.Cluster(ctx, object.GetNamespace(), owners.ClusterName(object)) // reads of a world never fail
	class, _ := l.chain.ClusterClass(ctx, cluster)
	if class == nil {
		return nil
	}
	section := inherit.SectionOf(cluster, class, object)
	if section == nil {
		return nil
	}
	declared := section.Declarations(cluster, class)
	if l.world.file(cluster) != nil && l.world.file(class) != nil {
		l.replaced(section.Class.Content, declared)
	}
	return declared
}

// replaced reports the taints and readiness gates of a class's section that are lost, because the topology has its own list.
func (l *linter) replaced(class inherit.Content, declared []inherit.Declaration) {
	var all []inherit.Entry
	annotated, _ := taint.FromAnnotations(class.Annotations)
	for _, t := range slices.Concat(class.Taints, annotated) {
		all = append(all, inherit.TaintEntry(taint.MachineID(t)))
	}
	for _, gate := range class.Fields.ReadinessGates {
		all = append(all, inherit.Entry{What: "field", Name: gate.ConditionType})
	}
	instead := declared[0]
	instead.Content = class // a declaration of the same kind replaces the list
	for _, e := range all {
		if !slices.ContainsFunc(declared, func(d inherit.Declaration) bool { return d.Declares(e) }) {
			l.found(listReplaced, l.world.file(instead.Object), pathOf(instead, e), "Repeat all items to keep in this list.",
				"%s %s of %s is lost: this list replaces the list of the class", strings.Replace(e.What, "field", "readiness gate", 1), e.Name,
				nameOf(declared[1].Kind, declared[1].Object))
		}
	}
}

// pathOf returns the path at which an object declares an entry.
func pathOf(d inherit.Declaration, e inherit.Entry) string {
	path := inherit.Sources{All: []inherit.Declaration{d}}.Of(e).Field
	if e.What == "label" || e.What == "annotation" {
		path += "[" + e.Name + "]"
	}
	return path
}

// leftOut reports entries that an API server would refuse in the child, at their declarations. Taints are judged separately.
func (l *linter) leftOut(declared []inherit.Declaration, problems error) {
	for _, problem := range inherit.Problems(problems) {
		var one inherit.Dropped
		if !errors.As(problem, &one) || one.Why != inherit.DropInvalid || one.What == "taint" || manifest.Placeholder(one.Name+one.Value) {
			continue
		}
		one.Own = true // the place in the child does not matter
		at := slices.IndexFunc(declared, func(d inherit.Declaration) bool { return d.Declares(one.Entry) && l.world.file(d.Object) != nil })
		if at >= 0 {
			l.found(leftOut, l.world.file(declared[at].Object), pathOf(declared[at], one.Entry),
				"Correct it: until then, Heirloom leaves it out and propagates the rest.", "%v", one)
		}
	}
}

// declaration judges the declarations of an object for Machines whose Nodes have these entries.
func (l *linter) declaration(s *subject, d inherit.Declaration, node inherit.Content, dropped inherit.Drops) {
	if len(d.Taints) > 0 && !d.Annotates && l.Policy.ClusterAPITaints == inherit.PropagationDisabled {
		l.found(typedWithoutGate, s, strings.Join(d.Paths.Taints, "."), "Declare them with the annotation "+taint.AlwaysAnnotation+" or "+
			taint.InitializeAnnotation+", or turn on the gate MachineTaintPropagation.", "typed taints reach no Node while the gate MachineTaintPropagation is off")
	}
	for _, e := range keys(d.Content) {
		value, _ := d.Value(e)
		path := pathOf(d, e)
		_, arrives := node.Value(e)
		switch why := whyIn(dropped, e); {
		case manifest.Placeholder(e.Name):
			l.found(unfilledTemplate, s, path, fillIn, "%s %s was not checked", e.What, e.Name)
		case arrives, d.Itself && e.What == "annotation":
		case manifest.Placeholder(value):
			l.missing(s, d, path, e, l.onNode(e))
		case why != inherit.DropSelected:
			l.missing(s, d, path, e, cmp.Or(why, inherit.DropElsewhere))
		case d.Kind == "Cluster" || d.Kind == "ClusterClass":
			l.found(usedBySelector, s, path, "Choose another key, or another selector.",
				"label %s is not inherited: an object below uses it in its selector", e.Name)
		case l.onNode(e) != "": // the object itself sets the labels of its selector on its Machines: no rule need propagate them
			l.missing(s, d, path, e, l.onNode(e))
		default:
			l.found(usedBySelector, s, path, "Select by cluster.x-k8s.io/deployment-name instead: a selector cannot be changed, so this takes a new "+
				d.Kind+".", "the selector uses label %s, which is for Nodes: Heirloom skips it, and you cannot change its value", e.Name)
		}
	}
}

// missing reports a key that does not reach a Node for this reason, unless nobody would expect it there.
func (l *linter) missing(s *subject, d inherit.Declaration, path string, e inherit.Entry, why inherit.Why) {
	domain, _, _ := strings.Cut(e.Name, "/")
	isClusterAPIs := strings.HasSuffix("."+domain, "."+clusterv1.GroupVersion.Group) || e.Name == clusterv1.MachineDeploymentUniqueLabel
	switch {
	case why == inherit.DropElsewhere && l.onNode(e) == "":
		l.found(wrongPlace, s, path, "If the control plane consists of Machines, declare machineInfrastructure in spec.controlPlane of the ClusterClass.",
			"%s %s is for Nodes, but reaches no Node: according to the ClusterClass, the control plane does not consist of Machines", e.What, e.Name)
	case isClusterAPIs: // Cluster API's controllers read the key at its place
	case why == inherit.DropOutside && e.What == "label" && setOnNodes.MatchString(e.Name):
		l.found(notForNodes, s, path, "Remove it: kubelets and cloud providers set it on each Node.", "label %s reaches Machines but no Node", e.Name)
	case why == inherit.DropOutside:
		l.found(notForNodes, s, path, cli.ToSync(l.Policy, e), "%s %s reaches Machines but no Node", e.What, e.Name)
	case (why == inherit.DropNever || why == inherit.DropReserved) && !d.Itself:
		l.found(neverInherited, s, path, "Remove it, or choose another key.",
			"no rule and no flag propagates %s %s: it reaches no Node", e.What, e.Name)
	}
}

// setOnNodes matches the labels that kubelets and cloud providers set on Nodes.
var setOnNodes = regexp.MustCompile(`^(kubernetes\.io/(hostname|os|arch)|node\.kubernetes\.io/instance-type|topology\.kubernetes\.io/.*)$`)

// whyIn returns the first reason why a key was left out, in the object itself or in its template. A patch of a control plane's own metadata
// is no reason: it does not concern Nodes.
func whyIn(dropped inherit.Drops, e inherit.Entry) inherit.Why {
	for _, d := range dropped {
		if d.What == e.What && d.Name == e.Name && d.Why != "" && d.Why != inherit.DropPatched {
			return d.Why
		}
	}
	return ""
}

// onNode returns why a Node does not get a key of its Machine by rules 11 and 12; empty if the Node gets it.
func (l *linter) onNode(e inherit.Entry) inherit.Why {
	only := map[string]string{e.Name: ""}
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Labels: only, Annotations: only}}
	return whyIn(asNew(l.Policy, m).LeftOut, e)
}

// asNew returns the plan for a new Node of a Machine.
func asNew(policy inherit.Policy, m *clusterv1.Machine) inherit.NodePlan {
	return policy.PlanNode(inherit.ReadNode(&corev1.Node{}, time.Time{}), inherit.SourceOfMachine(m), inherit.Turn{})
}

// twice reports taints that an annotation declares although a typed or Always declaration takes precedence.
func (l *linter) twice(s *subject, d inherit.Declaration, all []inherit.Declaration) {
	for n, way := range taint.Annotations {
		taints, _ := taint.FromAnnotations(map[string]string{way: d.Annotations[way]})
		for _, t := range taints {
			id := taint.MachineID(t)
			at := slices.IndexFunc(all, func(other inherit.Declaration) bool {
				return other.TypedTaint(id.String()) || slices.Contains(taint.Annotations[:n], other.TaintAnnotation(id.String()))
			})
			if at >= 0 {
				l.found(declaredTwice, s, pathOf(d, inherit.Entry{What: "annotation", Name: way}), "Remove one of the two.",
					"taint %s is also declared in %s (%s), which takes precedence", id, nameOf(all[at].Kind, all[at].Object), pathOf(all[at], inherit.TaintEntry(id)))
			}
		}
	}
}

// world is a management cluster with the objects of the files, and with made-up objects, which have no manifest. The owner chain reads it.
// An object of a file is also stored under its section of a topology.
type world map[string]*subject

func keyOf(o client.Object) string { return fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName()) }

func (w world) add(s *subject) {
	w[keyOf(s.chained)], w[sectionOf(s.chained)] = s, s
}

// file returns the object of a file that is this object, or nil if it is in no file.
func (w world) file(object client.Object) *subject {
	if s := w[keyOf(object)]; s != nil && s.Object != nil {
		return s
	}
	return nil
}

// Get implements client.Reader.
func (w world) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	found := w[fmt.Sprintf("%T %s", into, key)]
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(found.chained).Elem())
	return nil
}

// List implements client.Reader. No rule lists objects.
func (world) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.ErrUnsupported
}

// toCome is the name of objects that are in no file. No object of an API server can have this name.
const toCome = "(to come)"

// below returns the objects that propagate the declarations of a file's object: the object itself or, for a Cluster or a ClusterClass, an
// object for each section whose object is in no file. If the Cluster of a ClusterClass, or the ClusterClass of a Cluster, is in no file,
// below makes it up, without declarations.
func (w world) below(s *subject) (all []client.Object) {
	cluster, class, workers := &clusterv1.Cluster{}, &clusterv1.ClusterClass{}, s.carrier.Spec.Workers
	class.Spec.ControlPlane.MachineInfrastructure.TemplateRef.Name = toCome
	switch o := s.chained.(type) {
	default:
		if inherit.IsTemplate(s.GetKind()) { // the template of a control plane inherits nothing
			return nil
		}
		return []client.Object{o}
	case *clusterv1.ClusterClass:
		cluster.Namespace, cluster.Name, cluster.Spec.Topology.ClassRef.Name = o.Namespace, o.Name+toCome, o.Name
		w[keyOf(cluster)] = &subject{chained: cluster}
	case *clusterv1.Cluster:
		of, declared := owners.ClassOf(o)
		if !declared {
			return nil
		}
		class.Namespace, class.Name = of.Namespace, of.Name
		if known := w[keyOf(class)]; known == nil {
			w[keyOf(class)] = &subject{chained: class}
		} else if known.Object == nil {
			class, _ = known.chained.(*clusterv1.ClusterClass) // with the sections of another Cluster
		}
		cluster.ObjectMeta, cluster.Spec.ControlPlaneRef, workers = o.ObjectMeta, o.Spec.ControlPlaneRef, s.carrier.Spec.Topology.Workers
	}
	add := func(object client.Object, label, section string) {
		object.SetNamespace(cluster.Namespace)
		object.SetName(cmp.Or(object.GetName(), section+toCome))
		object.SetLabels(map[string]string{clusterv1.ClusterNameLabel: cluster.Name, clusterv1.ClusterTopologyOwnedLabel: "", label: section})
		if w[sectionOf(object)] == nil {
			all = append(all, object)
		}
	}
	cp := &inherit.ControlPlane{Spec: inherit.ControlPlaneSpec{MachineTemplate: &inherit.ControlPlaneMachineTemplate{}}}
	cp.APIVersion, cp.Kind, cp.Name = inherit.ControlPlaneGroup+"/v1beta2", cluster.Spec.ControlPlaneRef.Kind, cluster.Spec.ControlPlaneRef.Name
	add(cp, clusterv1.ClusterTopologyOwnedLabel, "")
	outline, topology := &class.Spec.Workers, &cluster.Spec.Topology.Workers
	for _, p := range workers.MachineDeployments {
		name := cmp.Or(p.Name, p.Class)
		outline.MachineDeployments = append(outline.MachineDeployments, clusterv1.MachineDeploymentClass{Class: p.Class})
		topology.MachineDeployments = append(topology.MachineDeployments, clusterv1.MachineDeploymentTopology{Name: name, Class: p.Class})
		add(&clusterv1.MachineDeployment{Spec: clusterv1.MachineDeploymentSpec{ClusterName: cluster.Name}}, clusterv1.ClusterTopologyMachineDeploymentNameLabel, name)
	}
	for _, p := range workers.MachinePools {
		name := cmp.Or(p.Name, p.Class)
		outline.MachinePools = append(outline.MachinePools, clusterv1.MachinePoolClass{Class: p.Class})
		topology.MachinePools = append(topology.MachinePools, clusterv1.MachinePoolTopology{Name: name, Class: p.Class})
		add(&clusterv1.MachinePool{Spec: clusterv1.MachinePoolSpec{ClusterName: cluster.Name}}, clusterv1.ClusterTopologyMachinePoolNameLabel, name)
	}
	return all
}

// sectionOf names the section of a topology to which an object belongs.
func sectionOf(object client.Object) string {
	labels := object.GetLabels()
	_, owned := labels[clusterv1.ClusterTopologyOwnedLabel]
	return fmt.Sprintf("%T %t %s/%s %s %s", object, owned, object.GetNamespace(), labels[clusterv1.ClusterNameLabel],
		labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel], labels[clusterv1.ClusterTopologyMachinePoolNameLabel])
}
