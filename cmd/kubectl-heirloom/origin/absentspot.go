// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"strings"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/rules"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// spot is a place of a holder where an entry may be.
type spot struct {
	own       bool
	paths     inherit.Paths
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
	e.Own = s.own
	want, desired := s.want.Value(e)
	dropped := rules.WhyNot(h.would, e)
	switch {
	case h.decided.Outcome == inherit.OwnerNotFound:
		return h.verdict(rules.OwnerNotFound)
	case s.own && h.handsDown && dropped == "" && desired && want != d.value:
		return h.verdict(inherit.DropElsewhere) // the place has another source
	case dropped == inherit.DropInvalid || dropped == inherit.DropReserved:
		return verdict{why: dropped, at: h.Ref, of: problemOf(h.would.Problems(), d.Entry)}
	case dropped != "":
		return h.verdict(dropped)
	case s.none || !hasField(s.paths, e):
		return h.verdict(noSuchField)
	case h.decided.Reason != "":
		return verdict{why: h.skipped, at: h.Ref, of: string(h.decided.Reason)}
	}
	return h.held(d, s, want, desired)
}

// held says why a holder lacks an entry that the rules bring.
func (h *holder) held(d declared, s spot, want string, desired bool) verdict {
	admitted, problems := inherit.Fit(h.has, h.would.Desired, func() inherit.Object { return h.has }, nil)
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

// hasField reports whether an object whose content is at these paths has a field for an entry.
func hasField(at inherit.Paths, e inherit.Entry) bool {
	switch e.What {
	case string(Taint):
		return at.Taints != nil
	case string(Field):
		return at.Fields[inherit.FieldOf(e.Name)] != nil
	}
	return at.Metadata != nil
}

func (h *holder) verdict(why inherit.Why) verdict {
	return verdict{why: why, at: h.Ref}
}

// problemOf returns what is wrong with an entry, or everything if no problem is about it alone.
func problemOf(problems error, e inherit.Entry) string {
	var all []string
	for _, problem := range inherit.Problems(problems) {
		if about := inherit.EntryOf(problem); about.What == e.What && about.Name == e.Name {
			return cli.OneLine(problem)
		}
		all = append(all, cli.OneLine(problem))
	}
	return strings.Join(all, "; ")
}
