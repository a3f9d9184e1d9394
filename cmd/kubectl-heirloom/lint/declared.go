// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/manifest"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// declares compares what is declared for the Machines below an object, by it and by those above it, with what their Nodes get.
func (l *linter) declares(ctx context.Context, s *subject) error {
	if s.chained == nil {
		return nil
	}
	for _, m := range l.world.descend(s.chained) {
		if err := l.node(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// arrival is what the Node of a Machine gets.
type arrival struct {
	machine *clusterv1.Machine
	// from is the Machine as it will be. node is what the Node has in the end, kubelet what it has from its own first write.
	from          inherit.NodeSource
	node, kubelet inherit.NodeState
	dropped       inherit.Drops
}

func (l *linter) node(ctx context.Context, m *clusterv1.Machine) error {
	cluster := types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.ClusterName}
	l.world.ensureCluster(cluster)
	chain, policy := l.world.chain(cluster), l.Policy
	policy.SkipNothing = true // a Cluster may be paused when it is applied
	node := &corev1.Node{Spec: corev1.NodeSpec{ProviderID: m.Spec.ProviderID}}
	decided, err := chain.EvaluateNode(ctx, node, policy)
	if err != nil || !decided.Inherits() {
		return err
	}
	a := arrival{machine: m, from: decided.Source}
	a.node, a.dropped = policy.Node(a.from, inherit.NodeState{}, inherit.Privileged) // what is left out is reported where it is declared
	a.kubelet, _ = policy.Node(a.from, inherit.NodeState{}, inherit.Kubelet)
	sources := chain.NodeSources(ctx, decided.Source)
	if sources.Err != nil {
		return sources.Err
	}
	for _, d := range sources.All {
		if s := l.world.file(d.Ref); s != nil {
			l.declaration(s, d, a)
		}
	}
	l.twice(sources.All)
	return nil
}

// declaration judges what one object declares for a Machine.
func (l *linter) declaration(s *subject, d inherit.Declaration, a arrival) {
	if len(d.Taints) > 0 && !d.Annotates && l.Policy.ClusterAPITaints == inherit.PropagationDisabled {
		l.found(typedWithoutGate, s, strings.Join(d.Paths.Taints, "."),
			"Declare them with the annotation "+taint.AlwaysAnnotation+" or "+taint.InitializeAnnotation+", or turn on the gate MachineTaintPropagation.",
			"typed taints reach no Node while Cluster API's gate is off")
	}
	without := l.leftOut(s, d)
	metadata := strings.Join(d.Paths.Metadata, ".")
	for _, name := range slices.Sorted(maps.Keys(d.Labels)) {
		at := entry{s, key{label, name}, fieldOf(metadata+".labels", name)}
		switch {
		case without.Has(name), l.unfilled(at, d.Labels[name]):
		case !has(a.node.Labels, name):
			l.missing(at, l.whyNot(at.key, a), d.Itself)
		case !has(a.kubelet.Labels, name):
			l.found(restrictedLabel, s, at.path, "",
				"a kubelet may not set label %s: a new Node has it only after the first write by Heirloom or Cluster API", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Annotations)) {
		at := entry{s, key{annotation, name}, fieldOf(metadata+".annotations", name)}
		if !d.Itself && !without.Has(name) && !l.unfilled(at, d.Annotations[name]) && !has(a.node.Annotations, name) {
			l.missing(at, l.whyNot(at.key, a), false)
		}
	}
}

// entry is a label or an annotation that an object declares.
type entry struct {
	in   *subject
	key  key
	path string
}

// whyNot asks the rules why a key does not arrive.
func (l *linter) whyNot(k key, a arrival) inherit.Why {
	why := a.from.WhyNot(a.dropped, k.entry())
	if why == inherit.DropElsewhere {
		return l.world.notInherited(l.Policy, a.machine, k.entry())
	}
	return why
}

// unfilled judges a label or an annotation that has a variable in its key or its value, as far as that is possible.
func (l *linter) unfilled(at entry, value string) bool {
	switch {
	case manifest.Placeholder(at.key.name):
		l.found(unfilledTemplate, at.in, at.path, fillIn, "%s %s was not judged", at.key.sort, at.key.name)
		return true
	case manifest.Placeholder(value):
		if why := notOnNode(l.Policy, at.key); why != "" {
			l.missing(at, why, false)
		}
		return true
	}
	return false
}

// missing reports a key that does not arrive at the Node for this reason, unless nobody would expect it there. itself says that it is
// the Machine's own.
func (l *linter) missing(at entry, why inherit.Why, itself bool) {
	k, s := at.key, at.in
	switch {
	case ofClusterAPI(k.name) && why != inherit.DropElsewhere:
	case why == inherit.DropOutside:
		l.found(notForNodes, s, at.path, "To let it reach Nodes, start the server with "+flagFor(k)+".", "%s %s reaches Machines and no Node",
			k.sort, k.name)
	case (why == inherit.DropNever || why == inherit.DropReserved) && !itself:
		l.found(neverInherited, s, at.path, "Remove it, or choose another key.",
			"%s %s is one of the keys that are never inherited: it reaches no Node, and no flag changes that", k.sort, k.name)
	case why == inherit.DropSelected:
		l.found(usedBySelector, s, at.path, "Choose another key, or another selector.",
			"label %s is not inherited: the selector of an object below uses it", k.name)
	case why == inherit.DropElsewhere && notOnNode(l.Policy, k) == "":
		l.found(wrongPlace, s, at.path,
			"If the control plane consists of Machines, declare machineInfrastructure in spec.controlPlane of the ClusterClass.",
			"%s %s is for Nodes, but reaches none: the ClusterClass says that its control plane does not consist of Machines", k.sort, k.name)
	}
}

// leftOut reports what an API server would refuse in a Machine, and returns the names.
func (l *linter) leftOut(s *subject, d inherit.Declaration) sets.Set[string] {
	machine := inherit.Object{Layout: inherit.MachineLayout}
	desired, dropped := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}.MachineFrom(&inherit.Template{Content: d.Content}, &clusterv1.Machine{})
	dropped = slices.DeleteFunc(dropped, func(d inherit.Dropped) bool { return d.What == "taint" || d.Why == "" }) // the taints of the file are judged apart
	_, noRoom := inherit.Fit(machine, desired, func() inherit.Object { return machine }, nil)
	names := sets.New[string]()
	for _, problem := range inherit.Problems(errors.Join(dropped.Problems(), noRoom)) {
		var one inherit.Dropped
		if !errors.As(problem, &one) || manifest.Placeholder(one.Name+one.Value) {
			continue
		}
		names.Insert(one.Name)
		source := inherit.Sources{All: []inherit.Declaration{d}}.Of(one.Entry)
		path := source.Field
		if one.What == label || one.What == annotation {
			path = fieldOf(path, one.Name)
		}
		l.found(leftOut, s, path, "Correct it: until then it is left out, and the rest is inherited.", "%v", one)
	}
	return names
}
