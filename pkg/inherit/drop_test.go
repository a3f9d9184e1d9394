// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"encoding/json"
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// ownersKey matches keys that the rules treat in different ways.
const ownersKey = `(team|cost\.example\.com/e|node-role\.kubernetes\.io/a|node\.cluster\.x-k8s\.io/c|helm\.sh/chart|kubectl\.kubernetes\.io/x|` +
	`cluster\.x-k8s\.io/cluster-name|cluster\.x-k8s\.io/interruptible|topology\.cluster\.x-k8s\.io/owned|topology\.cluster\.x-k8s\.io/defer-upgrade|` +
	`heirloom\.dev/f|heirloom\.node-restriction\.kubernetes\.io/record|selected|expressed|topology\.kubernetes\.io/zone|(node\.cluster\.x-k8s\.io/)?not valid!)`

var (
	ownersPairs  = rapid.MapOfN(rapid.StringMatching(ownersKey), rapid.SampledFrom([]string{"", "1", "not valid!"}), 0, 6)
	ownersTaints = rapid.Map(rapid.StringMatching(some(`(a|node\.kubernetes\.io/x|node-role\.kubernetes\.io/control-plane|-bad-)(=1)?:`+
		`(NoSchedule|NoExecute|Never)(@OnInitialization|@Sometimes)?`, ",")), declared)
	ownersMetadata = rapid.Custom(func(t *rapid.T) clusterv1.ObjectMeta {
		meta := clusterv1.ObjectMeta{Labels: ownersPairs.Draw(t, ""), Annotations: ownersPairs.Draw(t, "")}
		if rapid.Bool().Draw(t, "") {
			meta.Annotations["taints.heirloom.dev/always"] = rapid.StringMatching(some(aTaint, ",")).Draw(t, "")
		}
		return meta
	})
	templates = rapid.Custom(func(t *rapid.T) clusterv1.MachineTemplateSpec {
		return clusterv1.MachineTemplateSpec{ObjectMeta: ownersMetadata.Draw(t, ""), Spec: clusterv1.MachineSpec{Taints: ownersTaints.Draw(t, "")}}
	})
	selectors = rapid.SampledFrom([]metav1.LabelSelector{{}, {
		MatchLabels:      map[string]string{"selected": "1"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "expressed", Operator: metav1.LabelSelectorOpExists}},
	}})
	parts = rapid.Custom(func(t *rapid.T) inherit.Part {
		meta := ownersMetadata.Draw(t, "")
		return inherit.Part{Content: inherit.Content{Labels: meta.Labels, Annotations: meta.Annotations}}
	})
	sections = rapid.Custom(func(t *rapid.T) inherit.Section {
		s := inherit.Section{Class: parts.Draw(t, ""), Topology: parts.Draw(t, "")}
		s.Class.OfMachines, s.Class.Taints, s.Patch = rapid.Bool().Draw(t, ""), ownersTaints.Draw(t, ""), oneOf(t, "", "patch")
		if rapid.Bool().Draw(t, "") {
			s.Topology.Taints = ownersTaints.Draw(t, "")
		}
		return s
	})
	ownersMachines = rapid.Custom(func(t *rapid.T) *clusterv1.Machine {
		m, meta := &clusterv1.Machine{}, ownersMetadata.Draw(t, "")
		m.Labels, m.Annotations, m.Spec.Taints = meta.Labels, meta.Annotations, ownersTaints.Draw(t, "")
		m.Spec.ProviderID = oneOf(t, "", "id")
		if rapid.Bool().Draw(t, "") {
			m.Labels[clusterv1.MachineControlPlaneLabel] = ""
		}
		return m
	})
)

// sectionDeclares returns the declarations of the section, without taints of the class that the topology replaces.
func sectionDeclares(s inherit.Section) inherit.Content {
	all := inherit.Content{Labels: map[string]string{}, Annotations: map[string]string{}, Taints: s.Class.Taints}
	for _, from := range []inherit.Part{s.Class, s.Topology} {
		maps.Copy(all.Labels, from.Labels)
		maps.Copy(all.Annotations, from.Annotations)
	}
	if s.Topology.Taints != nil {
		all.Taints = s.Topology.Taints
	}
	return all
}

// judge records the reasons that occurred.
type judge struct {
	*rapid.T
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

// Each declared entry is either inherited or left out for one reason, and no input is mutated.
func TestRulesSayWhy(t *testing.T) {
	seen := sets.New[inherit.Why]()
	rapid.Check(t, func(t *rapid.T) {
		j, p, section := judge{t, seen}, policies.Draw(t, "policy"), sections.Draw(t, "section")
		p.PaceEviction = rapid.Bool().Draw(t, "paced")
		all := sectionDeclares(section)
		md, ms, m := &clusterv1.MachineDeployment{}, &clusterv1.MachineSet{}, ownersMachines.Draw(t, "Machine")
		md.Spec.Selector, md.Spec.Template = selectors.Draw(t, "its selector"), templates.Draw(t, "MachineDeployment's template")
		ms.Spec.Selector, ms.Spec.Template = selectors.Draw(t, "its selector"), templates.Draw(t, "MachineSet's template")
		md.Labels, md.Annotations = ownersPairs.Draw(t, "MachineDeployment's labels"), ownersPairs.Draw(t, "annotations")
		before := asJSON(t, section, md, ms, m)

		cp, dropped := p.ControlPlane(section, inherit.OfMachineDeployment(md))
		j.rule("rule 1", all, false, cp, dropped)
		j.rule("rule 1", inherit.Content{Labels: all.Labels, Annotations: all.Annotations}, true, cp, dropped)
		deployment, dropped := p.MachineDeployment(section, md)
		j.rule("rule 2", all, false, deployment, dropped)
		j.rule("rule 2", inherit.Content{Labels: all.Labels, Annotations: all.Annotations}, true, deployment, dropped)
		pool, dropped := p.MachinePool(section, &clusterv1.MachinePool{})
		plain := all
		plain.Annotations = maps.Clone(all.Annotations)
		delete(plain.Annotations, "taints.heirloom.dev/always") // rule 3 adds taints to this annotation
		j.rule("rule 3", plain, false, pool, dropped)
		j.rule("rule 3", inherit.Content{Labels: plain.Labels, Annotations: plain.Annotations}, true, pool, dropped)
		set, dropped := p.MachineSet(md, ms)
		j.rule("rule 6", *inherit.OfMachineDeployment(md).Template, false, set, dropped)
		j.rule("rule 6", inherit.Content{Labels: md.Spec.Template.Labels}, true, set, dropped)
		j.rule("rule 5", inherit.Content{Annotations: md.Annotations}, true, set, dropped)
		j.machine(p, inherit.TemplateOfMachineSet(ms), m)
		if after := asJSON(t, section, md, ms, m); after != before {
			t.Fatalf("an input was mutated: it was\n%s\nand is\n%s", before, after)
		}
		j.node(ownersMachines.Draw(t, "Node's Machine"), p)
	})
	for _, why := range []inherit.Why{
		inherit.DropNever, inherit.DropBookkeeping, inherit.DropSelected, inherit.DropIdentifies, inherit.DropOutside, inherit.DropReserved,
		inherit.DropInvalid, inherit.DropRestricted, inherit.DropTaints, inherit.DropPaced, inherit.DropOnce, inherit.DropPatched,
		inherit.DropElsewhere,
	} {
		if !seen.Has(why) {
			t.Errorf("no declaration was left out as %s", why)
		}
	}
}

func asJSON(t *rapid.T, inputs ...any) string {
	text, err := json.Marshal(inputs)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (j judge) machine(p inherit.Policy, template *inherit.Template, m *clusterv1.Machine) {
	j.Helper()
	machine, dropped := p.MachineFrom(template, m)
	j.rule("rule 8", template.Content, true, machine, dropped)
	// The taints that the Machine itself declares by annotation become typed, or have a reason.
	for _, entry := range (inherit.Content{Annotations: m.Annotations}).Entries() {
		if entry.What == "taint" {
			entry.Own = true
			j.entry("taints by annotation", entry, machine, dropped)
		}
	}
	external, dropped := p.External(template, inherit.OfMachine(m))
	j.rule("rule 8", inherit.Content{Labels: template.Labels, Annotations: template.Annotations}, true, external, dropped)
}

// node starts from a Node without entries: an entry that the Node has already is there regardless of the rules.
func (j judge) node(m *clusterv1.Machine, p inherit.Policy) {
	j.Helper()
	node := content{annotations: oneOf(j.T, "", "capi/taints=")}.node()
	for _, turn := range []inherit.Turn{kubelet, privileged} {
		from := inherit.SourceOfMachine(m)
		state, dropped := planned(p, from, node, turn)
		for _, entry := range inherit.OfMachine(m).Top.Entries() {
			why := from.WhyNot(dropped, entry)
			j.seen.Insert(why)
			if inherited := reaches(entry, state, from); inherited != (why == "") {
				j.Fatalf("rules 11 to 13 (kubelet: %t): %+v of %+v in %q: inherited: %t, and why not: %q", turn.Registering, entry, m, describe(state), inherited, why)
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
