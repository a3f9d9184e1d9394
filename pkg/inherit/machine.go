// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// MachineFrom is rules 4, 8 and 9: what a Machine inherits from its owner's template, which is nil if there is no owner. Labels that
// the owner selects by are not touched.
//
// If Cluster API propagates taints itself, the taints that the Machine carries as annotations become typed as well, so that both
// work from the same list (docs/design.md §3). The error lists taints that had to be left out; the rest is inherited.
func (p Policy) MachineFrom(template *Template, m *clusterv1.Machine) (Object, error) {
	inherited, typedErr := p.fromTemplate(template, m)
	annotated, annotatedErr := p.annotated(inherited, m)
	inherited.Claims = make(map[string]Claim, len(annotated))
	for _, t := range annotated {
		inherited.Claims[taint.MachineID(t).String()] = Default
	}
	for _, t := range inherited.Taints {
		delete(inherited.Claims, taint.MachineID(t).String())
	}
	inherited.Taints = taint.Merge(inherited.Taints, annotated)
	return Object{Top: inherited}, errors.Join(typedErr, annotatedErr)
}

// fromTemplate returns what the template declares for the Machine.
func (p Policy) fromTemplate(template *Template, m *clusterv1.Machine) (Content, error) {
	if template == nil {
		return Content{}, nil
	}
	taints, err := taint.Usable(roleOf(m), p.typed(template.Taints))
	return Content{
		Labels:      inheritableLabels(template.Labels, template.Selector),
		Annotations: inheritable(template.Annotations),
		Taints:      taints,
		Fields:      template.Fields,
	}, err
}

// SkipMachine decides about a Machine that is skipped or whose owner is not known, and leaves it as it is, with one exception. When
// Cluster API's gate goes off, its webhooks refuse every write of a Machine that still has taints in its spec, even the removal of the
// last finalizer and the writes of clusterctl move. The taints that Heirloom made typed must not block those, so they go.
func (p Policy) SkipMachine(m *clusterv1.Machine, d Decision) Decision {
	if p.ClusterAPITaints == PropagationDisabled && len(m.Spec.Taints) > 0 && !p.LeftToAnother(m) {
		d.Outcome, d.TaintsRefused = NoOwner, true
	}
	return d
}

// annotated returns the taints that the Machine declares by annotation, now or once it has inherited. They are propagated only if
// Cluster API accepts typed taints. While that is not known, those that the Machine has stay.
func (p Policy) annotated(inherited Content, m *clusterv1.Machine) ([]clusterv1.MachineTaint, error) {
	if p.ClusterAPITaints == PropagationDisabled {
		return nil, nil
	}
	declared, parseErr := taint.FromAnnotations(mergeMaps(m.Annotations, inherited.Annotations))
	usable, err := taint.Usable(roleOf(m), declared)
	if len(usable) > 0 {
		stays := p.staysAnnotation(m)
		usable = slices.DeleteFunc(usable, func(t clusterv1.MachineTaint) bool { return stays(t) != "" })
	}
	return usable, errors.Join(parseErr, err)
}

// staysAnnotation says why a taint that is declared by annotation does not become typed in this Machine.
func (p Policy) staysAnnotation(m *clusterv1.Machine) func(clusterv1.MachineTaint) Dropped {
	var carried sets.Set[clusterv1.MachineTaint]
	if p.ClusterAPITaints == PropagationUnknown {
		carried = sets.New(m.Spec.Taints...)
	}
	var typed func(clusterv1.MachineTaint) bool
	if p.PaceEviction && mayHaveNode(m) {
		typed = typedIn(m)
	}
	return func(t clusterv1.MachineTaint) Dropped {
		switch {
		case p.ClusterAPITaints == PropagationDisabled, carried != nil && !carried.Has(t):
			return DropTaints
		case typed != nil && evicts(t) && !typed(t):
			return DropPaced
		}
		return ""
	}
}

// WhyNotMachine says why rules 4, 8 and 9 do not bring an entry that the template declares, which is nil if there is no owner, or why
// a taint that the Machine has by annotation does not become typed.
func (p Policy) WhyNotMachine(template *Template, m *clusterv1.Machine, e Entry) Dropped {
	if e.What != taintKey {
		return template.dropped(e)
	}
	why, annotations := DropElsewhere, m.Annotations
	if template != nil {
		annotations = mergeMaps(annotations, inheritable(template.Annotations))
		if why = p.droppedTyped(roleOf(m), template.Taints, e.Name); why == "" {
			return ""
		}
	}
	annotated, _ := taint.FromAnnotations(annotations)
	byAnnotation := droppedTaint(roleOf(m), annotated, e.Name)
	if t, _ := findTaint(annotated, e.Name); byAnnotation == "" {
		byAnnotation = p.staysAnnotation(m)(t)
	}
	if why == DropElsewhere || byAnnotation == "" {
		return byAnnotation
	}
	return why
}

// mayHaveNode reports whether the Machine is or may be in use: after a restore or a move, its nodeRef is not known at first.
func mayHaveNode(m *clusterv1.Machine) bool {
	return m.Status.NodeRef.Name != "" || m.Spec.ProviderID != ""
}

// typedIn tells which taints the Machine has in its spec, so that Cluster API has added them to the Node.
func typedIn(m *clusterv1.Machine) func(clusterv1.MachineTaint) bool {
	always := map[taint.ID]bool{}
	for _, t := range m.Spec.Taints {
		always[taint.MachineID(t)] = always[taint.MachineID(t)] || taint.Always(t)
	}
	return func(t clusterv1.MachineTaint) bool {
		alwaysThere, there := always[taint.MachineID(t)]
		return there && (alwaysThere || taint.Initialize(t))
	}
}

func roleOf(m *clusterv1.Machine) taint.Role {
	return taint.Role(IsControlPlane(m))
}

// IsControlPlane reports whether the Machine belongs to a control plane.
func IsControlPlane(m *clusterv1.Machine) bool {
	return has(m.Labels, clusterv1.MachineControlPlaneLabel)
}
