// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// MachineSet implements rules 5 and 6: it returns the content that a MachineSet inherits from its MachineDeployment.
//
// Rule 5: the MachineDeployment's own annotations reach the MachineSet's own. Rule 6: the template's labels reach the MachineSet's metadata
// and its template; annotations, taints and in-place fields reach its template only.
func (p Policy) MachineSet(md *clusterv1.MachineDeployment, ms *clusterv1.MachineSet) (Object, Drops) {
	var out Drops
	template, child := contentOf(&md.Spec.Template), OfMachineSet(ms)
	label := ofTemplate(false, md.Spec.Selector, ms.Spec.Selector)
	inherited := p.take(child.template(&out), taint.Worker, template, label)
	top := child.top(&out)
	return Object{
		Top:      Content{Labels: top.keys(labelKey, template.Labels, label), Annotations: top.keys(annotationKey, md.Annotations, OfItself)},
		Template: &inherited,
	}, out
}

// External implements rules 4 and 8 for the external objects of a Machine: it returns the content that an InfraMachine or a BootstrapConfig
// inherits from the template of the Machine's owner; template is nil if there is no owner. The content has only labels and annotations,
// because the spec belongs to the provider.
func (Policy) External(template *Template, child Object) (Object, Drops) {
	if template == nil {
		return Object{}, nil
	}
	var out Drops
	inherited := child.top(&out).metadata(template.Content, ofTemplate(false, template.Selector))
	return Object{Top: inherited}, out
}

// IsTemplate reports whether a provider's kind is a template, by the name that Cluster API's contract requires. Templates of infrastructure
// and bootstrap objects inherit nothing, because another template means another rollout.
func IsTemplate(kind string) bool { return strings.HasSuffix(kind, "Template") }

// MachineFrom implements rules 4, 8 and 9: it returns the content that a Machine inherits from its owner's template; template is nil if
// there is no owner. If Cluster API propagates taints itself, the taints that the Machine has as annotations become typed as well
// (docs/design.md §3).
func (p Policy) MachineFrom(template *Template, m *clusterv1.Machine) (Object, Drops) {
	var out Drops
	at := OfMachine(m).top(&out)
	var inherited Content
	if template != nil {
		inherited = p.fromTemplate(at, template, m)
	}
	annotated := p.annotated(at, inherited, m)
	inherited.Claims = make(map[string]Claim, len(annotated))
	for _, t := range annotated {
		inherited.Claims[taint.MachineID(t).String()] = Default
	}
	for _, t := range inherited.Taints {
		delete(inherited.Claims, taint.MachineID(t).String())
	}
	inherited.Taints = taint.Merge(inherited.Taints, annotated)
	return Object{Top: inherited}, out
}

// fromTemplate returns the content that the Machine inherits from the template.
func (p Policy) fromTemplate(at place, template *Template, m *clusterv1.Machine) Content {
	return p.take(at, roleOf(m), template.Content, ofTemplate(false, template.Selector))
}

// annotated returns the taints to make typed: taints that the Machine declares by annotation, now or once it has inherited. Cluster API
// must accept typed taints. While this is not known, only taints that the Machine already has in its spec stay.
func (p Policy) annotated(at place, inherited Content, m *clusterv1.Machine) []clusterv1.MachineTaint {
	told := len(*at.out)
	carried, always := sets.New(m.Spec.Taints...), map[taint.ID]bool{}
	for _, t := range m.Spec.Taints {
		always[taint.MachineID(t)] = always[taint.MachineID(t)] || taint.Always(t)
	}
	mayHaveNode := m.Status.NodeRef.Name != "" || m.Spec.ProviderID != "" // after a restore or a move, a nodeRef is not known at first
	usable := slices.DeleteFunc(at.annotated(roleOf(m), mergeMaps(m.Annotations, inherited.Annotations)), func(t clusterv1.MachineTaint) bool {
		id, why := taint.MachineID(t), Why("")
		onNode := has(always, id) && (always[id] || taint.Initialize(t)) // put there by Cluster API
		switch {
		case p.ClusterAPITaints == PropagationDisabled, p.ClusterAPITaints == PropagationUnknown && !carried.Has(t):
			why = DropTaints
		case p.PaceEviction && mayHaveNode && t.Effect == corev1.TaintEffectNoExecute && !onNode:
			why = DropPaced
		default:
			return false
		}
		at.drop(taintKey, id.String(), why, "", "")
		return true
	})
	for i := told; i < len(*at.out) && p.ClusterAPITaints == PropagationDisabled; i++ {
		(*at.out)[i].Detail = "" // the problems of the Node have the details
	}
	return usable
}

// SkipMachine returns the decision for a Machine that is skipped or whose owner is not known. The Machine stays as it is, with one
// exception. When Cluster API's gate is turned off, its webhooks refuse every write of a Machine that still has taints in its spec, even
// the removal of the last finalizer and the writes of clusterctl move. The taints that Heirloom made typed must not block these writes, so
// Heirloom removes them.
func (p Policy) SkipMachine(m *clusterv1.Machine, d Decision) Decision {
	if p.ClusterAPITaints == PropagationDisabled && len(m.Spec.Taints) > 0 && !p.LeftToAnother(m) {
		d.Outcome, d.TaintsRefused = NoOwner, true
	}
	return d
}

func roleOf(m *clusterv1.Machine) taint.Role {
	return taint.Role(has(m.Labels, clusterv1.MachineControlPlaneLabel))
}
