// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// Absence is something that an owner declares and the object has not got, and why.
type Absence struct {
	// Kind and Key are empty if what is declared is not known.
	Kind Kind `json:"kind,omitempty"`
	// Key is "<key>:<effect>" for a taint.
	Key string `json:"key,omitempty"`
	// Value is what the owner declares.
	Value string `json:"value,omitempty"`
	// Source is where it is declared, and From says it in words.
	Source inherit.Source `json:"-"`
	From   string         `json:"from,omitempty"`
	// Reason is one word, for programs.
	Reason string `json:"reason"`
	// Message says why, and what to do.
	Message string `json:"message"`
}

// Reasons that only a comparison with what is stored can find, beside those of inherit.Dropped.
const (
	noSuchField     inherit.Dropped = "NoSuchField"
	ownValueWins    inherit.Dropped = "OwnValueWins"
	overriddenAbove inherit.Dropped = "OverriddenAbove"
	waiting         inherit.Dropped = "WaitingForItsTurn"
	notYet          inherit.Dropped = "NotYet"
)

// question asks what is missing on an object.
type question struct {
	chain    *ownerchain.Chain
	schemas  ownerchain.Schemas
	settings settings.Settings
	// key is the key of interest, of a taint with or without its effect. If it is empty, every key is, except those that only
	// describe the object that carries them.
	key string
}

// absences returns what owners declare for an object of Cluster API or of a provider and what it has not got.
func absences[P client.Object](ctx context.Context, q question, kind ownerchain.Kind[P], ref inherit.Ref, object P) ([]Absence, error) {
	last, sources, err := hold(ctx, q, kind, ref, object)
	if err != nil {
		return nil, err
	}
	if last.decided.Outcome == inherit.OwnerNotFound || last.would.Outcome == inherit.OwnerNotFound {
		return q.unknown(last.verdict(inherit.DropOwnerNotFound)), nil
	}
	holders, err := q.holders(ctx, sources, last)
	if err != nil {
		return nil, err
	}
	f := &finder{question: q, sources: sources, holders: holders, last: last}
	f.declared(func(d declared) (verdict, bool) { return f.missing(d) })
	f.overridden(f.last.there)
	f.yielded()
	return f.sorted(), nil
}

// unknown is the answer if it is not known what is declared.
func (q question) unknown(v verdict) []Absence {
	return []Absence{{Key: q.key, Reason: string(v.why), Message: q.message(declared{}, v)}}
}

// declared is one entry that an owner declares.
type declared struct {
	inherit.Entry
	value string
	// by is the declaration, at is its position in the sources.
	by inherit.Declaration
	at int
	// metadata says that the entry is in the metadata of the owner itself, and not declared for others.
	metadata bool
	source   inherit.Source
}

// verdict says why an entry is missing, and at which object of the chain it stopped.
type verdict struct {
	why inherit.Dropped
	at  inherit.Ref
	// of is the reason of an object that is left alone, or what is wrong with the entry.
	of string
	// template says that the Machine template of the explained object lacks the entry.
	template bool
}

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
		if seen[d.Entry] || !f.wanted(d.Name) {
			return
		}
		seen[d.Entry] = true
		if v, yes := missing(d); yes {
			f.add(d, v)
		}
	}
	for at, by := range f.sources.All {
		for _, e := range by.Entries() {
			value, _ := by.Value(e)
			look(declared{Entry: e, value: value, by: by, at: at, source: f.sources.Of(e)})
		}
	}
	for at, by := range f.sources.All {
		for _, e := range metadataOf(by).Entries() {
			if e.What == string(Taint) {
				continue
			}
			value, _ := metadataOf(by).Value(e)
			source := inherit.Source{Ref: by.Ref, Field: "metadata." + e.What + "s"}
			look(declared{Entry: e, value: value, by: by, at: at, metadata: true, source: source})
		}
	}
}

// metadataOf returns what an owner has in its own metadata, where most rules take nothing from.
func metadataOf(d inherit.Declaration) inherit.Content {
	if d.Object == nil || d.Unread || d.Itself {
		return inherit.Content{}
	}
	return inherit.Content{Labels: d.Object.GetLabels(), Annotations: d.Object.GetAnnotations()}
}

func (f *finder) wanted(name string) bool {
	key, _, _ := strings.Cut(name, ":")
	return f.key == "" || f.key == name || f.key == key
}

// add notes an absence, unless no one would miss the key and no one has asked for it.
func (f *finder) add(d declared, v verdict) {
	if f.key == "" && (v.why == inherit.DropBookkeeping || v.why == inherit.DropIdentifies || d.metadata && v.why == inherit.DropNever) {
		return
	}
	kind := Kind(d.What)
	if v.template {
		kind = "template " + kind
	}
	f.found = append(f.found, Absence{
		Kind: kind, Key: d.Name, Value: d.value, Source: d.source, From: describe(d.source), Reason: string(v.why), Message: f.message(d, v),
	})
}

func (f *finder) sorted() []Absence {
	order := []Kind{Label, Annotation, Taint, "field", TemplateLabel, TemplateAnnotation, TemplateTaint, "template field"}
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
	if f.at(d.by.Object) >= len(f.holders)-1 {
		return verdict{}, false // the object declares it itself
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
	why := cmp.Or(inherit.WhyNotOwn(d.Name), inherit.DropElsewhere)
	return verdict{why: why, at: d.by.Ref}, true
}

// overridden finds what a ClusterClass declares and the topology replaces, unless it is there all the same.
func (f *finder) overridden(there func(declared) bool) {
	if len(f.holders) == 0 || f.holders[0].section == nil {
		return
	}
	over := f.holders[0].section.Overridden()
	for at, by := range f.sources.All {
		if by.Kind != "ClusterClass" {
			continue
		}
		for _, e := range over.Entries() {
			value, _ := over.Value(e)
			d := declared{Entry: e, value: value, by: by, at: at, source: inherit.Sources{All: []inherit.Declaration{by}}.Of(e)}
			if f.wanted(e.Name) && f.applies(e) && !there(d) {
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
		if now := f.last.has.Top.Annotations[name]; claim == inherit.Owned || !desired || now == want || now == "" || !f.wanted(name) {
			continue
		}
		f.add(declared{Entry: e, value: want, source: f.sources.Of(e)}, verdict{why: ownValueWins, at: f.last.Ref})
	}
}
