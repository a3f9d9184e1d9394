// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// holder is an object of the chain that what is declared above it has to reach first.
type holder struct {
	inherit.Ref
	has inherit.Object
	// decided is what is in force, and would what would be if the object were not left alone.
	decided, would inherit.Decision
	whyNot         func(inherit.Entry) inherit.Dropped
	// section is what a topology declares for it.
	section *inherit.Section
	// handsDown says that the object has a Machine template, external that it is one of a provider beside a Machine.
	handsDown, external bool
}

// hold evaluates an object, as it is and as if nothing were left alone.
func hold[P client.Object](ctx context.Context, q question, kind ownerchain.Kind[P], ref inherit.Ref, object P) (*holder, inherit.Sources, error) {
	h := &holder{Ref: ref}
	var err error
	if h.has, err = kind.Content(ctx, q.schemas, object); err != nil {
		return nil, inherit.Sources{}, err
	}
	policy := q.settings.Policy()
	decided, err := kind.Evaluate(ctx, q.chain, object, policy)
	if err != nil {
		return nil, inherit.Sources{}, err
	}
	h.decided = decided.Decision
	if decided.Reason != "" && decided.Outcome != inherit.OwnerNotFound {
		policy.SkipNothing = true
		if decided, err = kind.Evaluate(ctx, q.chain, object, policy); err != nil {
			return nil, inherit.Sources{}, err
		}
	}
	h.would = decided.Decision
	sources := decided.Sources(ctx)
	h.handsDown = true
	err = h.rule(ctx, q, any(object), sources)
	return h, sources, err
}

// rule finds the rule by which the object inherits.
func (h *holder) rule(ctx context.Context, q question, object any, sources inherit.Sources) error {
	policy := q.settings.Policy()
	h.whyNot = func(inherit.Entry) inherit.Dropped { return inherit.DropElsewhere }
	switch o := object.(type) {
	case *capi.ControlPlane:
		return h.ofTopology(ctx, q, o, o.Labels[clusterv1.ClusterNameLabel], policy.WhyNotControlPlane)
	case *capi.MachineDeployment:
		return h.ofTopology(ctx, q, o, o.Spec.ClusterName, func(s inherit.Section, e inherit.Entry) inherit.Dropped {
			return policy.WhyNotMachineDeployment(s, o, e)
		})
	case *capi.MachinePool:
		return h.ofTopology(ctx, q, o, o.Spec.ClusterName, policy.WhyNotMachinePool)
	case *capi.MachineSet:
		md, err := q.chain.MachineDeployment(ctx, o)
		if md != nil {
			h.whyNot = func(e inherit.Entry) inherit.Dropped { return policy.WhyNotMachineSet(md, o, e) }
		}
		return err
	case *capi.Machine:
		h.handsDown = false
		owner, err := q.chain.MachineOwner(ctx, o)
		h.whyNot = func(e inherit.Entry) inherit.Dropped { return policy.WhyNotMachine(owner.Template, o, e) }
		return err
	case *metav1.PartialObjectMetadata:
		h.handsDown, h.external = false, true
		h.whyNot = templateAbove(sources).WhyNotExternal
	}
	return nil
}

func (h *holder) ofTopology(ctx context.Context, q question, object metav1.Object, name string, whyNot func(inherit.Section, inherit.Entry) inherit.Dropped) error {
	cluster, err := q.chain.Cluster(ctx, object.GetNamespace(), name)
	if err != nil {
		return err
	}
	class, err := q.chain.ClusterClass(ctx, cluster)
	if err != nil || class == nil {
		return err
	}
	if h.section = inherit.SectionOf(cluster, class, object); h.section != nil {
		h.whyNot = func(e inherit.Entry) inherit.Dropped { return whyNot(*h.section, e) }
	}
	return nil
}

// templateAbove returns the template from which a provider's object inherits.
func templateAbove(sources inherit.Sources) *inherit.Template {
	for i := len(sources.All) - 1; i >= 0; i-- {
		switch d := sources.All[i]; o := d.Object.(type) {
		case *capi.MachineSet:
			return inherit.TemplateOfMachineSet(o)
		case *unstructured.Unstructured, *capi.MachinePool:
			return &inherit.Template{Content: d.Content}
		}
	}
	return nil
}

// holders are the objects between the top of the chain and the explained one, which is the last.
func (q question) holders(ctx context.Context, sources inherit.Sources, last *holder) ([]*holder, error) {
	var all []*holder
	var errs []error
	for _, d := range sources.All {
		if last != nil && d.Object.GetUID() == last.Object.GetUID() && d.Object.GetName() == last.Object.GetName() {
			continue
		}
		h, err := q.holder(ctx, d)
		if h != nil {
			all = append(all, h)
		}
		errs = append(errs, err)
	}
	if last != nil {
		all = append(all, last)
	}
	return all, errors.Join(errs...)
}

func (q question) holder(ctx context.Context, d inherit.Declaration) (h *holder, err error) {
	switch o := d.Object.(type) {
	case *capi.MachineDeployment:
		h, _, err = hold(ctx, q, ownerchain.MachineDeployments(), d.Ref, o)
	case *capi.MachinePool:
		h, _, err = hold(ctx, q, ownerchain.MachinePools(), d.Ref, o)
	case *capi.MachineSet:
		h, _, err = hold(ctx, q, ownerchain.MachineSets(), d.Ref, o)
	case *capi.Machine:
		h, _, err = hold(ctx, q, ownerchain.Machines(), d.Ref, o)
	case *unstructured.Unstructured:
		ref := &metav1.OwnerReference{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName()}
		_, cp, readErr := q.chain.ControlPlane(ctx, o.GetNamespace(), ref)
		if readErr != nil || cp == nil {
			return nil, readErr
		}
		h, _, err = hold(ctx, q, ownerchain.ControlPlanes(), d.Ref, cp)
	}
	return h, err
}

// spot is a place of a holder where an entry may be.
type spot struct {
	own       bool
	paths     capi.Paths
	now, want inherit.Content
	// none says that the object has no such place.
	none bool
}

func (s spot) has(e inherit.Entry) bool {
	_, ok := s.now.Value(e)
	return ok
}

func (h *holder) top() spot {
	return spot{own: true, paths: h.has.Layout.Top, now: h.has.Top, want: h.would.Desired.Top}
}

func (h *holder) template() spot {
	s := spot{paths: h.has.Layout.Template, none: h.has.Template == nil}
	if h.has.Template != nil {
		s.now = *h.has.Template
	}
	if h.would.Desired.Template != nil {
		s.want = *h.would.Desired.Template
	}
	return s
}

// below is where the holder has what those below it inherit.
func (h *holder) below() spot {
	if h.handsDown {
		return h.template()
	}
	return h.top()
}

// spots are all places where the explained object may have an entry.
func (h *holder) spots(e inherit.Entry) []spot {
	switch {
	case !h.handsDown:
		return []spot{h.top()}
	case e.What == string(Label) || e.What == string(Annotation):
		return []spot{h.template(), h.top()}
	}
	return []spot{h.template()}
}

// carries reports whether those below a holder can inherit an entry from it, however it carries a taint.
func (h *holder) carries(d declared) bool {
	now, ok := h.below().now.Value(d.Entry)
	return ok && now == d.value
}

// there reports whether the explained object has an entry wherever it should.
func (h *holder) there(d declared) bool {
	for _, s := range h.spots(d.Entry) {
		if v, missing := h.missingAt(d, s); missing && v.why != inherit.DropElsewhere {
			return false
		}
	}
	return h.anywhere(d)
}

func (h *holder) anywhere(d declared) bool {
	for _, s := range h.spots(d.Entry) {
		if _, missing := h.missingAt(d, s); !missing {
			return true
		}
	}
	return false
}

// missing says why the explained object has not got an entry.
func (h *holder) missing(d declared) (verdict, bool) {
	var found verdict
	for _, s := range h.spots(d.Entry) {
		v, missing := h.missingAt(d, s)
		if missing && (found.why == "" || found.why == inherit.DropElsewhere) {
			found = v
		}
	}
	return found, found.why != ""
}

func (h *holder) missingAt(d declared, s spot) (verdict, bool) {
	now, there := s.now.Value(d.Entry)
	if d.What == string(Taint) {
		there = there && s.now.TypedTaint(d.Name)
	}
	if there && now == d.value {
		return verdict{}, false
	}
	v := h.why(d, s)
	v.template = !s.own
	return v, true
}

// why says why a holder lacks an entry at a place of it.
func (h *holder) why(d declared, s spot) verdict {
	e := d.Entry
	e.Own = s.own && h.handsDown
	want, desired := s.want.Value(e)
	dropped := h.whyNot(e)
	switch {
	case h.decided.Outcome == inherit.OwnerNotFound:
		return h.verdict(inherit.DropOwnerNotFound)
	case s.own && h.handsDown && dropped == "" && desired && want != d.value:
		return h.verdict(inherit.DropElsewhere) // the place has another source
	case dropped == inherit.DropInvalid || dropped == inherit.DropReserved:
		return verdict{why: dropped, at: h.Ref, of: problemOf(h.would.Problems, d.Entry)}
	case dropped != "":
		return h.verdict(dropped)
	case s.none || !inherit.HasRoom(s.paths, e):
		return h.verdict(noSuchField)
	case h.decided.Reason != "":
		return verdict{why: h.decided.Reason.Dropped(), at: h.Ref, of: string(h.decided.Reason)}
	}
	return h.held(d, s, want, desired)
}

// held says why a holder lacks an entry that the rules bring.
func (h *holder) held(d declared, s spot, want string, desired bool) verdict {
	admitted, problems := inherit.Admissible(h.has, h.would.Desired, func() inherit.Object { return h.has }, nil)
	content := &admitted.Top
	if !s.own {
		content = admitted.Template
	}
	if content != nil && desired {
		if _, fits := content.Value(d.Entry); !fits {
			return verdict{why: inherit.DropInvalid, at: h.Ref, of: problemOf(problems, d.Entry)}
		}
	}
	now, there := s.now.Value(d.Entry)
	gives := s.want.Claims[d.Name] != inherit.Owned || d.What == string(Taint) && want == ""
	if there && gives && now != want && s.now.TypedTaint(d.Name) == (d.What == string(Taint)) {
		return verdict{why: ownValueWins, at: h.Ref, of: now}
	}
	return h.verdict(notYet)
}

func (h *holder) verdict(why inherit.Dropped) verdict {
	return verdict{why: why, at: h.Ref}
}

// problemOf returns what is wrong with an entry, or everything if no problem is about it alone.
func problemOf(problems error, e inherit.Entry) string {
	var all []string
	for _, problem := range inherit.Problems(problems) {
		if strings.Contains(problem.Error(), e.Name) {
			return oneLine(problem)
		}
		all = append(all, oneLine(problem))
	}
	return strings.Join(all, "; ")
}
