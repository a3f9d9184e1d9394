// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"maps"
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// declarations makes what owners declare out of keys that the rules treat differently.
type declarations struct{ dice }

func (d declarations) key() string {
	return d.pick("team", "cost.example.com/e", "node-role.kubernetes.io/a", "node.cluster.x-k8s.io/c", "helm.sh/chart", "kubectl.kubernetes.io/x",
		"cluster.x-k8s.io/cluster-name", "cluster.x-k8s.io/interruptible", "topology.cluster.x-k8s.io/owned", "topology.cluster.x-k8s.io/defer-upgrade",
		"heirloom.dev/f", "heirloom.node-restriction.kubernetes.io/record", "selected", "expressed", "topology.kubernetes.io/zone", "not valid!",
		"node.cluster.x-k8s.io/not valid!")
}

func (d declarations) pairs() map[string]string {
	all := map[string]string{}
	for range d.IntN(6) {
		all[d.key()] = d.pick("", "1", "not valid!")
	}
	return all
}

func (d declarations) taints() []clusterv1.MachineTaint {
	return declared(d.some(",", func() string {
		return d.pick("a", "node.kubernetes.io/x", "node-role.kubernetes.io/control-plane", "-bad-") + d.pick("", "=1") + ":" +
			d.pick("NoSchedule", "NoExecute", "Never") + d.pick("", "@OnInitialization", "@Sometimes")
	}))
}

func (d declarations) annotations() map[string]string {
	all := d.pairs()
	if d.IntN(2) > 0 {
		all["taints.heirloom.dev/always"] = d.some(",", d.taint)
	}
	return all
}

func (d declarations) metadata() clusterv1.ObjectMeta {
	return clusterv1.ObjectMeta{Labels: d.pairs(), Annotations: d.annotations()}
}

func (d declarations) template() clusterv1.MachineTemplateSpec {
	return clusterv1.MachineTemplateSpec{ObjectMeta: d.metadata(), Spec: clusterv1.MachineSpec{Taints: d.taints()}}
}

func (d declarations) selector() metav1.LabelSelector {
	if d.IntN(2) > 0 {
		return metav1.LabelSelector{}
	}
	return metav1.LabelSelector{
		MatchLabels:      map[string]string{"selected": "1"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "expressed", Operator: metav1.LabelSelectorOpExists}},
	}
}

func (d declarations) section() inherit.Section {
	part := func() inherit.Part {
		return inherit.Part{Content: inherit.Content{Labels: d.pairs(), Annotations: d.annotations()}}
	}
	s := inherit.Section{Class: part(), Topology: part()}
	s.Class.OfMachines = d.IntN(2) > 0
	s.Class.Taints = d.taints()
	if d.IntN(2) > 0 {
		s.Topology.Taints = d.taints()
	}
	return s
}

// all is what the section declares, without what the topology replaces.
func (d declarations) all(s inherit.Section) inherit.Content {
	all := inherit.Content{Labels: map[string]string{}, Annotations: map[string]string{}, Taints: s.Class.Taints}
	for _, from := range []inherit.Part{s.Class, s.Topology} {
		for key, value := range from.Labels {
			all.Labels[key] = value
		}
		for key, value := range from.Annotations {
			all.Annotations[key] = value
		}
	}
	if s.Topology.Taints != nil {
		all.Taints = s.Topology.Taints
	}
	return all
}

func (d declarations) machine() *clusterv1.Machine {
	m := &clusterv1.Machine{}
	m.Labels, m.Annotations, m.Spec.Taints = d.pairs(), d.annotations(), d.taints()
	m.Spec.ProviderID = d.pick("", "id")
	if d.IntN(2) > 0 {
		m.Labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	return m
}

// judge remembers the reasons that it has seen.
type judge struct {
	*testing.T
	seen sets.Set[inherit.Why]
}

// rule fails unless each declared entry is either inherited or left out for one reason.
func (j judge) rule(rule string, declares inherit.Content, own bool, desired inherit.Object, dropped inherit.Drops) {
	j.Helper()
	for _, entry := range declares.Entries() {
		if entry.What == "taint" && !declares.TypedTaint(entry.Name) {
			continue // its annotation is an entry
		}
		entry.Own = own
		j.entry(rule, entry, desired, dropped)
	}
}

func (j judge) entry(rule string, e inherit.Entry, desired inherit.Object, dropped inherit.Drops) {
	j.Helper()
	inherited := desired.Top
	if !e.Own {
		inherited = *desired.Template
	}
	_, there := inherited.Value(e)
	if e.What == "taint" {
		there = inherited.TypedTaint(e.Name)
	}
	why := inherit.Decision{Desired: desired, Dropped: dropped}.WhyNot(e)
	j.seen.Insert(why)
	if there != (why == "") {
		j.Fatalf("%s: %+v in\n%+v\ninherited: %t, and why not: %q\nleft out: %+v", rule, e, inherited, there, why, dropped)
	}
}

// TestRulesSayWhy holds for whatever owners declare: each entry is inherited, or one reason says why it is not, and never both.
func TestRulesSayWhy(t *testing.T) {
	d, seen := declarations{dice{rand.New(rand.NewPCG(2026, 12))}}, sets.New[inherit.Why]()
	j := judge{t, seen}
	for range 2000 {
		p := d.policy()
		p.PaceEviction = d.IntN(2) > 0
		section := d.section()
		all := d.all(section)
		md, ms, m := &clusterv1.MachineDeployment{}, &clusterv1.MachineSet{}, d.machine()
		md.Spec.Selector, md.Spec.Template, ms.Spec.Selector, ms.Spec.Template = d.selector(), d.template(), d.selector(), d.template()
		md.Labels, md.Annotations = d.pairs(), d.pairs()

		cp, dropped := p.ControlPlane(section, inherit.OfMachineDeployment(md))
		j.rule("rule 1", all, false, cp, dropped)
		j.rule("rule 1", inherit.Content{Labels: all.Labels, Annotations: all.Annotations}, true, cp, dropped)
		deployment, dropped := p.MachineDeployment(section, md)
		j.rule("rule 2", all, false, deployment, dropped)
		j.rule("rule 2", inherit.Content{Labels: all.Labels, Annotations: all.Annotations}, true, deployment, dropped)
		pool, dropped := p.MachinePool(section, &clusterv1.MachinePool{})
		plain := all
		plain.Annotations = maps.Clone(all.Annotations)
		delete(plain.Annotations, "taints.heirloom.dev/always") // rule 3 adds to them
		j.rule("rule 3", plain, false, pool, dropped)
		j.rule("rule 3", inherit.Content{Labels: plain.Labels, Annotations: plain.Annotations}, true, pool, dropped)
		set, dropped := p.MachineSet(md, ms)
		j.rule("rule 6", *inherit.OfMachineDeployment(md).Template, false, set, dropped)
		j.rule("rule 6", inherit.Content{Labels: md.Spec.Template.Labels}, true, set, dropped)
		j.rule("rule 5", inherit.Content{Annotations: md.Annotations}, true, set, dropped)
		j.machine(p, inherit.TemplateOfMachineSet(ms), m)
		j.node(d, p)
	}
	for _, why := range []inherit.Why{
		inherit.DropNever, inherit.DropBookkeeping, inherit.DropSelected, inherit.DropIdentifies, inherit.DropOutside, inherit.DropReserved,
		inherit.DropInvalid, inherit.DropRestricted, inherit.DropTaints, inherit.DropPaced, inherit.DropOnce, inherit.DropElsewhere,
	} {
		if !seen.Has(why) {
			t.Errorf("no declaration was left out as %s", why)
		}
	}
}

func (j judge) machine(p inherit.Policy, template *inherit.Template, m *clusterv1.Machine) {
	j.Helper()
	machine, dropped := p.MachineFrom(template, m)
	j.rule("rule 8", template.Content, true, machine, dropped)
	// The taints that the Machine itself declares by annotation become typed, or it is said why not.
	for _, entry := range (inherit.Content{Annotations: m.Annotations}).Entries() {
		if entry.What == "taint" {
			entry.Own = true
			j.entry("taints by annotation", entry, machine, dropped)
		}
	}
	external, dropped := p.External(template, inherit.OfMachine(m))
	j.rule("rule 8", inherit.Content{Labels: template.Labels, Annotations: template.Annotations}, true, external, dropped)
}

// node compares with a Node that has nothing itself: what it has already is there whatever the rules say.
func (j judge) node(d declarations, p inherit.Policy) {
	j.Helper()
	m := d.machine()
	node := content{annotations: d.pick("", "capi/taints=")}.node()
	for _, writer := range []inherit.Writer{inherit.Kubelet, inherit.Privileged} {
		from := inherit.SourceOfMachine(m)
		state, dropped := p.Node(from, node, writer)
		for _, entry := range inherit.OfMachine(m).Top.Entries() {
			why := from.WhyNot(dropped, entry)
			j.seen.Insert(why)
			if inherited := reaches(entry, state, from); inherited != (why == "") {
				j.Fatalf("rules 11 to 13 (kubelet: %t): %+v of %+v in %q: inherited: %t, and why not: %q", writer, entry, m, describe(state), inherited, why)
			}
		}
	}
}

func reaches(e inherit.Entry, state inherit.NodeState, from inherit.NodeSource) bool {
	now := inherit.Content{Labels: state.Labels, Annotations: state.Annotations}
	for _, t := range state.Taints {
		now.Taints = append(now.Taints, clusterv1.MachineTaint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	value, there := now.Value(e)
	want := from.Labels[e.Name]
	switch e.What {
	case "annotation":
		want = from.Annotations[e.Name]
	case "taint":
		return now.TypedTaint(e.Name)
	}
	return there && value == want
}
