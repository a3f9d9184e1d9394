// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
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
	seen sets.Set[inherit.Dropped]
}

// rule fails unless each declared entry is either inherited or explained.
func (j judge) rule(rule string, declares, desired inherit.Content, own bool, whyNot func(inherit.Entry) inherit.Dropped) {
	j.Helper()
	for _, entry := range declares.Entries() {
		if entry.What == "taint" && !declares.TypedTaint(entry.Name) {
			continue // its annotation is an entry
		}
		entry.Own = own
		_, inherited := desired.Value(entry)
		if entry.What == "taint" {
			inherited = desired.TypedTaint(entry.Name)
		}
		why := whyNot(entry)
		j.seen.Insert(why)
		if inherited != (why == "") {
			j.Fatalf("%s: %+v of\n%+v\nin\n%+v\ninherited: %t, and why not: %q", rule, entry, declares, desired, inherited, why)
		}
	}
}

// TestWhyNotAgreesWithTheRules holds for whatever owners declare: each entry is inherited, or one reason says why it is not, and never
// both.
func TestWhyNotAgreesWithTheRules(t *testing.T) {
	d, seen := declarations{dice{rand.New(rand.NewPCG(2026, 12))}}, sets.New[inherit.Dropped]()
	j := judge{t, seen}
	for range 2000 {
		p := d.policy()
		p.PaceEviction = d.IntN(2) > 0
		section := d.section()
		all := d.all(section)
		md, ms, m := &clusterv1.MachineDeployment{}, &clusterv1.MachineSet{}, d.machine()
		md.Spec.Selector, md.Spec.Template, ms.Spec.Selector, ms.Spec.Template = d.selector(), d.template(), d.selector(), d.template()
		md.Labels, md.Annotations = d.pairs(), d.pairs()

		cp, _ := p.ControlPlane(section)
		j.rule("rule 1", all, *cp.Template, false, func(e inherit.Entry) inherit.Dropped { return p.WhyNotControlPlane(section, e) })
		j.rule("rule 1", all, cp.Top, true, func(e inherit.Entry) inherit.Dropped { return p.WhyNotControlPlane(section, e) })
		deployment, _ := p.MachineDeployment(section, md)
		j.rule("rule 2", all, *deployment.Template, false, func(e inherit.Entry) inherit.Dropped { return p.WhyNotMachineDeployment(section, md, e) })
		j.rule("rule 2", all, deployment.Top, true, func(e inherit.Entry) inherit.Dropped { return p.WhyNotMachineDeployment(section, md, e) })
		j.pool(p, section, all)

		set, _ := p.MachineSet(md, ms)
		whyNotSet := func(e inherit.Entry) inherit.Dropped { return p.WhyNotMachineSet(md, ms, e) }
		template := *inherit.OfMachineDeployment(md).Template
		j.rule("rule 6", template, *set.Template, false, whyNotSet)
		j.rule("rule 6", template, set.Top, true, whyNotSet)
		j.rule("rule 5", inherit.Content{Labels: md.Labels, Annotations: md.Annotations}, set.Top, true, whyNotSet)
		j.machine(p, inherit.TemplateOfMachineSet(ms), m)
		j.node(d, p)
	}
	for _, why := range []inherit.Dropped{
		inherit.DropNever, inherit.DropBookkeeping, inherit.DropSelected, inherit.DropIdentifies, inherit.DropOutside, inherit.DropReserved,
		inherit.DropInvalid, inherit.DropRestricted, inherit.DropTaints, inherit.DropPaced, inherit.DropOnce, inherit.DropElsewhere,
	} {
		if !seen.Has(why) {
			t.Errorf("no declaration was left out as %s", why)
		}
	}
}

// pool leaves out annotations that declare taints: rule 3 adds to them.
func (j judge) pool(p inherit.Policy, section inherit.Section, all inherit.Content) {
	j.Helper()
	pool, _ := p.MachinePool(section)
	delete(all.Annotations, "taints.heirloom.dev/always")
	whyNot := func(e inherit.Entry) inherit.Dropped { return p.WhyNotMachinePool(section, e) }
	j.rule("rule 3", all, *pool.Template, false, whyNot)
	j.rule("rule 3", all, pool.Top, true, whyNot)
}

func (j judge) machine(p inherit.Policy, template *inherit.Template, m *clusterv1.Machine) {
	j.Helper()
	machine, _ := p.MachineFrom(template, m)
	whyNot := func(e inherit.Entry) inherit.Dropped { return p.WhyNotMachine(template, m, e) }
	j.rule("rule 8", template.Content, machine.Top, false, whyNot)
	external := p.External(template)
	j.rule("rule 8", template.Content, external.Top, false, template.WhyNotExternal)

	// The taints that the Machine itself declares by annotation become typed, or it is said why not.
	for _, entry := range (inherit.Content{Annotations: m.Annotations}).Entries() {
		why := whyNot(entry)
		if entry.What == "taint" {
			j.seen.Insert(why)
		}
		if entry.What == "taint" && machine.Top.TypedTaint(entry.Name) != (why == "") {
			j.Fatalf("taint %s by annotation: typed in %+v, and why not: %q", entry.Name, machine.Top.Taints, why)
		}
	}
}

// node compares with a Node that has nothing itself: what it has already is there whatever the rules say.
func (j judge) node(d declarations, p inherit.Policy) {
	j.Helper()
	m := d.machine()
	node := content{annotations: d.pick("", "capi/taints=")}.node()
	for _, writer := range []inherit.Writer{inherit.Kubelet, inherit.Privileged} {
		from := inherit.SourceOfMachine(m)
		state, _ := p.Node(from, node, writer)
		for _, entry := range inherit.OfMachine(m).Top.Entries() {
			why := p.WhyNotNode(from, node, writer, entry)
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
