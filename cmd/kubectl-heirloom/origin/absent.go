// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/rules"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
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

// Reasons that only a comparison with what is stored can find, beside those of inherit.Why.
const (
	noSuchField     inherit.Why = "NoSuchField"
	ownValueWins    inherit.Why = "OwnValueWins"
	overriddenAbove inherit.Why = "OverriddenAbove"
	notYet          inherit.Why = "NotYet"
	otherNamespace  inherit.Why = "OtherNamespace"
)

// question asks what is missing on an object.
type question struct {
	chain    *owners.Chain
	settings settings.Settings
	policy   inherit.Policy
	// key is the key of interest, of a taint with or without its effect. If it is empty, every key is, except those that only
	// describe the object that carries them.
	key string
}

// absences returns what owners declare for an object of Cluster API or of a provider and what it has not got.
func absences[P client.Object](ctx context.Context, q question, kind owners.Kind, ref inherit.Ref, object P) ([]Absence, error) {
	last, sources, err := hold(ctx, q, kind, ref, object)
	if err != nil {
		return nil, err
	}
	if last.decided.Outcome == inherit.OwnerNotFound || last.would.Outcome == inherit.OwnerNotFound {
		return q.unknown(last.verdict(rules.OwnerNotFound)), nil
	}
	holders, err := q.holders(ctx, sources, last)
	if err != nil {
		return nil, err
	}
	f := &finder{question: q, sources: sources, holders: holders, last: last}
	f.declared(func(d declared) (verdict, bool) { return f.missing(d) })
	f.overridden(f.last.there)
	f.yielded()
	return f.answer(last.top().now, last.template().now), nil
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
	why inherit.Why
	at  inherit.Ref
	// of is the reason of an object that is left alone, or what is wrong with the entry.
	of string
	// template says that the Machine template of the explained object lacks the entry.
	template bool
}
