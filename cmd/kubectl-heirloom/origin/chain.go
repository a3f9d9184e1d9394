// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"maps"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// chain computes the places of a family, from its top down.
type chain struct {
	Family
	rules inherit.Policy
}

// rulesFor returns the rules as wide as they may be in force, because only what an object has is looked up in what they
// bring: taints flow as if Cluster API propagated them, and what the operator's own regexes selected for the Node, which
// are not known here, is read from what was recorded there.
func rulesFor(node *corev1.Node) inherit.Policy {
	rules := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}
	if node != nil {
		rules.AdditionalLabels = recorded(node, clusterv1.LabelsFromMachineAnnotation, inherit.LabelsFromMachineAnnotation)
		rules.AdditionalAnnotations = recorded(node, clusterv1.AnnotationsFromMachineAnnotation, inherit.AnnotationsFromMachineAnnotation)
	}
	return rules
}

// recorded returns regexes for exactly the keys that tracking annotations list.
func recorded(node *corev1.Node, annotations ...string) []*regexp.Regexp {
	var exact []*regexp.Regexp
	for _, name := range annotations {
		for key := range strings.SplitSeq(node.Annotations[name], ",") {
			if key = strings.TrimSpace(key); key != "" {
				exact = append(exact, regexp.MustCompile("^"+regexp.QuoteMeta(key)+"$"))
			}
		}
	}
	return exact
}

// declared is the template of the MachineDeployment, the top of the chain.
func (c chain) declared() place {
	md := c.MachineDeployment
	if md == nil {
		return place{}
	}
	t := md.Spec.Template
	return place{
		object: ownerchain.Name("MachineDeployment", md), path: []string{"spec", "template"},
		has: contentOf(inherit.Content{Labels: t.Labels, Annotations: t.Annotations, Taints: t.Spec.Taints}),
	}
}

// machineSet is the top of the MachineSet (rules 5 and 6). What the rules bring of a MachineDeployment without a template
// comes from its own metadata.
func (c chain) machineSet() place {
	p := place{object: ownerchain.Name("MachineSet", c.MachineSet), has: contentOf(inherit.OfMachineSet(c.MachineSet).Top)}
	if c.MachineDeployment == nil {
		return p
	}
	inherited, _ := c.rules.MachineSet(c.MachineDeployment, c.MachineSet) // notes tells what was left out
	p.inherits = bring(contentOf(inherited.Top), c.declared().sources())
	bare := *c.MachineDeployment
	bare.Spec.Template = capi.MachineTemplate{}
	own := place{object: ownerchain.Name("MachineDeployment", &bare), has: contentOfMaps(bare.Labels, bare.Annotations)}
	inherited, _ = c.rules.MachineSet(&bare, c.MachineSet) // as above
	maps.Copy(p.inherits, bring(contentOf(inherited.Top), own.sources()))
	return p
}

// template is the template of the MachineSet (rule 6).
func (c chain) template() place {
	if c.MachineSet == nil {
		return place{}
	}
	p := place{
		object: ownerchain.Name("MachineSet", c.MachineSet), path: []string{"spec", "template"},
		has: contentOf(*inherit.OfMachineSet(c.MachineSet).Template),
	}
	if c.MachineDeployment != nil {
		inherited, _ := c.rules.MachineSet(c.MachineDeployment, c.MachineSet) // as above
		p.inherits = bring(contentOf(*inherited.Template), c.declared().sources())
	}
	return p
}

// machine is the Machine (rule 8). A taint declared by annotation becomes typed, unless the Machine has another.
func (c chain) machine() place {
	p := place{object: ownerchain.Name("Machine", c.Machine), has: contentOf(inherit.OfMachine(c.Machine).Top)}
	desired, _ := c.rules.MachineFrom(inherit.TemplateOfMachineSet(c.MachineSet), c.Machine) // notes tells what was left out
	declared, byAnnotation := contentOf(desired.Top), content{}
	for i, v := range declared {
		if i.kind == Taint && desired.Top.Claims[taint.ID{Key: i.key, Effect: i.effect}.String()] == inherit.Default {
			byAnnotation[i] = v
			delete(declared, i)
		}
	}
	p.inherits = bring(declared, c.template().sources())
	for i, from := range bring(byAnnotation, annotated(c.Machine, p.sources())) {
		if current, ok := p.has[i]; !ok || current == from.value {
			p.inherits[i] = from
		}
	}
	return p
}

// annotated returns the sources of the taints that a Machine declares by annotation.
func annotated(m *capi.Machine, from sources) sources {
	all := sources{}
	for _, name := range []string{taint.InitializeAnnotation, taint.AlwaysAnnotation} { // the second wins
		taints, _ := taint.FromAnnotations(map[string]string{name: m.Annotations[name]}) // as above
		for _, t := range taints {
			all[id{Taint, t.Key, t.Effect}] = from[id{kind: Annotation, key: name}] + "[" + name + "]"
		}
	}
	return all
}

// node is the Node (rules 11 to 13). Beside what it inherits, the rules record there what came from the Machine.
func (c chain) node() place {
	machine := c.machine().sources()
	for i, from := range annotated(c.Machine, machine) {
		if _, typed := machine[i]; !typed {
			machine[i] = from
		}
	}
	state, _ := c.rules.Node(inherit.SourceOfMachine(c.Machine), inherit.NodeState{}, inherit.Privileged) // as above
	brought := contentOfNode(state)
	p := place{
		object: "Node " + c.Node.Name, has: contentOfNode(inherit.OfNode(c.Node)), atomicTaints: true,
		inherits: bring(brought, machine), records: sources{},
	}
	for i := range brought {
		if _, ok := p.inherits[i]; !ok {
			p.records[i] = "records what came from " + ownerchain.Name("Machine", c.Machine)
		}
	}
	return p
}
