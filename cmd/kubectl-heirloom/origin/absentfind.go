// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"cmp"
	"slices"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/rules"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// finder collects what is missing on one object.
type finder struct {
	question
	sources inherit.Sources
	holders []*holder
	last    *holder
	found   []Absence
}

// declared looks at all that is declared, from the top. Of several that declare an entry, the uppermost counts.
func (f *finder) declared(missing func(declared) (verdict, bool)) {
	seen := map[inherit.Entry]bool{}
	look := func(d declared) {
		if seen[d.Entry] || !f.wanted(d.Entry) {
			return
		}
		seen[d.Entry] = true
		v, yes := missing(d)
		if above, shadowed := f.shadowed(d); yes && shadowed {
			v.why, v.at = overriddenAbove, above
		}
		if yes {
			f.add(d, v)
		}
	}
	for at, by := range f.sources.All {
		for _, e := range rules.Entries(by.Content) {
			value, _ := by.Value(e)
			look(declared{Entry: e, value: value, by: by, at: at, source: f.sources.Of(e)})
		}
	}
	for at, by := range f.sources.All {
		for _, e := range rules.Entries(metadataOf(by)) {
			if e.What == string(Taint) {
				continue
			}
			value, _ := metadataOf(by).Value(e)
			source := inherit.Source{Ref: by.Ref, Field: "metadata." + e.What + "s"}
			look(declared{Entry: e, value: value, by: by, at: at, metadata: true, source: source})
		}
	}
}

// shadowed reports whether an annotation that declares a taint gives way to the same annotation of an object further up.
func (f *finder) shadowed(d declared) (inherit.Ref, bool) {
	name := d.by.TaintAnnotation(d.Name)
	if d.What != string(Taint) || name == "" {
		return inherit.Ref{}, false
	}
	for _, above := range f.sources.All[:d.at] {
		if _, declares := above.Annotations[name]; declares {
			return above.Ref, true
		}
	}
	return inherit.Ref{}, false
}

// metadataOf returns what an owner has in its own metadata, where most rules take nothing from.
func metadataOf(d inherit.Declaration) inherit.Content {
	if d.Object == nil || d.Unread || d.Itself {
		return inherit.Content{}
	}
	return inherit.Content{Labels: d.Object.GetLabels(), Annotations: d.Object.GetAnnotations()}
}

func (f *finder) wanted(e inherit.Entry) bool {
	named := &Entry{Kind: Kind(e.What), Key: shown(e)}
	return f.key == "" || named.is(f.key)
}

// shown is what people call an entry.
func shown(e inherit.Entry) string {
	if e.What == string(Taint) {
		return e.Name
	}
	return id{kind: Kind(e.What), key: e.Name, gate: e.What == string(Field) && inherit.FieldOf(e.Name) == inherit.ReadinessGates}.shown()
}

// add notes an absence, unless no one would miss the key and no one has asked for it.
func (f *finder) add(d declared, v verdict) {
	if f.key == "" && quiet(d, v.why) {
		return
	}
	kind := Kind(d.What)
	if v.template {
		kind = "template " + kind
	}
	f.found = append(f.found, Absence{
		Kind: kind, Key: shown(d.Entry), Value: d.value, Source: d.source, From: describe(d.source), Reason: string(v.why), Message: f.message(d, v),
	})
}

// quiet reports whether no one misses a key.
func quiet(d declared, why inherit.Why) bool {
	switch why {
	case inherit.DropBookkeeping, inherit.DropIdentifies:
		return true
	case inherit.DropNever:
		return d.metadata
	case inherit.DropOutside:
		return ofControllers(d.Name)
	}
	return false
}

// answer returns what was found. If it is nothing, and the object that has all this lacks the key of interest, an owner whose own
// owner is not there may be why.
func (f *finder) answer(has ...inherit.Content) []Absence {
	if f.key == "" || len(f.found) > 0 || slices.ContainsFunc(has, func(c inherit.Content) bool { return slices.ContainsFunc(rules.Entries(c), f.wanted) }) {
		return f.sorted()
	}
	for _, h := range f.holders {
		if h.decided.Outcome == inherit.OwnerNotFound {
			return f.unknown(h.verdict(rules.OwnerNotFound))
		}
	}
	return nil
}

func (f *finder) sorted() []Absence {
	order := []Kind{Label, Annotation, Taint, Field, TemplateLabel, TemplateAnnotation, TemplateTaint, TemplateField}
	slices.SortStableFunc(f.found, func(a, b Absence) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), cmp.Compare(a.Key, b.Key))
	})
	return f.found
}

// missing says why the explained object has not got an entry.
func (f *finder) missing(d declared) (verdict, bool) {
	if d.metadata {
		return f.missingMetadata(d)
	}
	if d.What == string(Taint) && f.last.handsDown && d.by.TaintAnnotation(d.Name) != "" {
		return verdict{}, false // it travels as an annotation
	}
	if !f.applies(d.Entry) || f.last.there(d) {
		return verdict{}, false
	}
	if v, stuck := f.stuck(d); stuck {
		return v, true
	}
	if itself := f.at(d.by.Object) == len(f.holders)-1; itself && (d.What != string(Taint) || d.by.TaintAnnotation(d.Name) == "") {
		return verdict{}, false // but a taint that the object declares by annotation becomes typed
	}
	return f.last.missing(d)
}

// applies reports whether the explained object can have such an entry at all.
func (f *finder) applies(e inherit.Entry) bool {
	metadata := e.What == string(Label) || e.What == string(Annotation)
	return metadata || f.last == nil && e.What == string(Taint) || f.last != nil && !f.last.external
}

// stuck says at which object above the explained one an entry has stopped.
func (f *finder) stuck(d declared) (verdict, bool) {
	for i := f.at(d.by.Object) + 1; i < len(f.holders); i++ {
		h := f.holders[i]
		if h == f.last {
			break
		}
		if !h.carries(d) {
			return h.why(d.handedDown(), h.below()), true
		}
	}
	return verdict{}, false
}

// at returns the position of an object among the holders; -1 if it is above all of them.
func (f *finder) at(object inherit.Owner) int {
	return slices.IndexFunc(f.holders, func(h *holder) bool {
		return h.Object.GetUID() == object.GetUID() && h.Object.GetName() == object.GetName()
	})
}

// handedDown is the entry as templates hand it down: a taint by annotation is part of an annotation there.
func (d declared) handedDown() declared {
	if name := d.by.TaintAnnotation(d.Name); d.What == string(Taint) && name != "" {
		d.Entry = inherit.Entry{What: string(Annotation), Name: name}
		d.value = d.by.Annotations[name]
	}
	return d
}

// missingMetadata is missing for an entry of an owner's own metadata. Only a MachineSet inherits from there (rule 5).
func (f *finder) missingMetadata(d declared) (verdict, bool) {
	own := d.Entry
	own.Own = true
	if _, there := f.last.has.Top.Value(own); there || f.last.template().has(d.Entry) || f.at(d.by.Object) == len(f.holders)-1 {
		return verdict{}, false
	}
	if d.by.Metadata != nil && d.What == string(Annotation) {
		d.Entry = own
		return f.last.why(d, f.last.top()), true
	}
	why := cmp.Or(inherit.OfItself(d.Name), inherit.DropElsewhere)
	return verdict{why: why, at: d.by.Ref}, true
}

// overridden finds what a ClusterClass declares and the topology replaces, unless it is there all the same.
func (f *finder) overridden(there func(declared) bool) {
	if len(f.holders) == 0 || f.holders[0].section == nil {
		return
	}
	over := Overridden(*f.holders[0].section)
	for at, by := range f.sources.All {
		if by.Kind != "ClusterClass" {
			continue
		}
		for _, e := range rules.Entries(over) {
			value, _ := over.Value(e)
			d := declared{Entry: e, value: value, by: by, at: at, source: inherit.Sources{All: []inherit.Declaration{by}}.Of(e)}
			if f.wanted(e) && f.applies(e) && !there(d) {
				f.add(d, verdict{why: overriddenAbove, at: f.sources.All[0].Ref, template: f.last != nil && f.last.handsDown})
			}
		}
	}
}

// yielded finds what gives way to the object's own value and is no entry of an owner: what cluster-autoscaler is told (rule 14).
func (f *finder) yielded() {
	top := f.last.would.Desired.Top
	for name, claim := range top.Claims {
		e := inherit.Entry{What: string(Annotation), Name: name, Own: true}
		want, desired := top.Annotations[name]
		if now := f.last.has.Top.Annotations[name]; claim == inherit.Owned || !desired || now == want || now == "" || !f.wanted(e) {
			continue
		}
		f.add(declared{Entry: e, value: want, source: f.sources.Of(e)}, verdict{why: ownValueWins, at: f.last.Ref, of: f.last.has.Top.Annotations[name]})
	}
}
