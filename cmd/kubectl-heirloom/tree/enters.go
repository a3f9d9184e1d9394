// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownership"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// entering is what objects inherit, by the uppermost object that declares it.
type entering map[object]*declared

// object names an object.
type object struct {
	kind string
	types.NamespacedName
}

// declared are the entries of one object, in the order in which they were found, and where they are.
type declared struct {
	entries []Entry
	at      map[[2]string]int
}

// inherited is one entry that an object inherits.
type inherited struct {
	inherit.Entry
	// value is a string or, for taints and fields, what the plan has.
	value any
}

// entering asks every object of a tree what it inherits, and the sources of that where each entry is declared.
func (b Builder) entering(ctx context.Context, t *snapshot.Tree) entering {
	e := entering{}
	for _, branch := range t.Children {
		b.collect(ctx, e, branch, branch.Object.GetName())
	}
	kinds := []string{labelWord, annotationWord, taintWord}
	for _, found := range e {
		slices.SortStableFunc(found.entries, func(a, b Entry) int {
			return cmp.Or(cmp.Compare(place(kinds, a.Kind), place(kinds, b.Kind)), cmp.Compare(a.Key, b.Key))
		})
		for i := range found.entries {
			if len(found.entries[i].For) == len(t.Children) && len(t.Children) > 1 {
				found.entries[i].For = nil // for all of them
			}
		}
	}
	return e
}

// place returns where a word is in a list; one that is not there comes last.
func place(all []string, word string) int {
	if at := slices.Index(all, word); at >= 0 {
		return at
	}
	return len(all)
}

// collect adds what an object of a branch and those below it inherit.
func (b Builder) collect(ctx context.Context, e entering, m *snapshot.Member, branch string) {
	var found []inherited
	var sources inherit.Sources
	switch {
	case m.Err != nil:
	case m.Node != nil && m.Node.Decided.Inherits():
		found, sources = b.ofNode(m.Node), m.Node.Sources
	case m.Node == nil && !m.Decided.Untouched():
		found, sources = ofObject(m), m.Decided.Sources(ctx)
	}
	for _, one := range found {
		e.add(one, sources, branch)
	}
	for _, child := range m.Children {
		b.collect(ctx, e, child, branch)
	}
}

// ofObject is all that an object inherits: what would be written into one that has nothing.
func ofObject(m *snapshot.Member) []inherited {
	nothing := inherit.Object{Layout: m.Has.Layout}
	if m.Has.Template != nil {
		nothing.Template = &inherit.Content{}
	}
	plan, err := ownership.New(&metav1.ObjectMeta{}, nothing, m.Decided.Decision, nil)
	if err != nil {
		return nil // only managed fields can be wrong, and there are none
	}
	var all []inherited
	for _, change := range plan.Changes() {
		if !slices.Contains(inherit.CapacityAnnotations(), change.Name) { // the object's own, made of what enters elsewhere
			all = append(all, inherited{change.Entry(), change.Value})
		}
	}
	return all
}

// ofNode is the same for a Node.
func (b Builder) ofNode(node *snapshot.NodeMember) []inherited {
	state, _ := b.Policy.Node(node.Decided.Source, inherit.NodeState{}, inherit.Privileged)
	var all []inherited
	for _, key := range inherit.Brought(inherit.NodeState{}, state) {
		one := inherited{Entry: key.Entry()}
		switch one.What {
		case labelWord:
			one.value = state.Labels[one.Name]
		case annotationWord:
			one.value = state.Annotations[one.Name]
		default:
			one.value = key.Name
		}
		all = append(all, one)
	}
	return all
}

// The words for what an entry is, as package inherit has them.
const (
	labelWord      = "label"
	annotationWord = "annotation"
	taintWord      = "taint"
)

// add adds an entry to the object that declares it. A taint that is declared by annotation enters as that annotation.
func (e entering) add(one inherited, sources inherit.Sources, branch string) {
	source := sources.Of(one.Entry)
	if source.Object == nil || strings.HasSuffix(source.Field, "["+taint.AlwaysAnnotation+"]") || strings.HasSuffix(source.Field, "["+taint.InitializeAnnotation+"]") {
		return
	}
	of := nameOf(source.Ref)
	found := e[of]
	if found == nil {
		found = &declared{at: map[[2]string]int{}}
		e[of] = found
	}
	at, known := found.at[[2]string{one.What, one.Name}]
	if !known {
		at = len(found.entries)
		found.at[[2]string{one.What, one.Name}] = at
		found.entries = append(found.entries, entryOf(one, sources, source))
	}
	entry := &found.entries[at]
	if (of.kind == clusterKind || of.kind == classKind) && !slices.Contains(entry.For, branch) {
		entry.For = append(entry.For, branch)
	}
}

// at returns what enters at an object.
func (e entering) at(ref inherit.Ref) []Entry {
	found := e[nameOf(ref)]
	if found == nil {
		return nil
	}
	return found.entries
}

func nameOf(ref inherit.Ref) object {
	return object{ref.Kind, types.NamespacedName{Namespace: ref.Object.GetNamespace(), Name: ref.Object.GetName()}}
}

// entryOf describes an entry as the object that declares it has it: an object further down may have drifted.
func entryOf(one inherited, sources inherit.Sources, source inherit.Source) Entry {
	e := Entry{Kind: one.What, Key: one.Name, Field: source.Field}
	for _, d := range sources.All {
		if d.Ref != source.Ref {
			continue
		}
		if value, ok := d.Labels[one.Name]; ok && one.What == labelWord {
			one.value = value
		}
		if value, ok := d.Annotations[one.Name]; ok && one.What == annotationWord {
			one.value = value
		}
		for _, t := range d.Taints {
			if one.What == taintWord && taint.MachineID(t).String() == one.Name {
				one.value = t
			}
		}
	}
	switch value := one.value.(type) {
	case clusterv1.MachineTaint:
		e.Value, e.Propagation = value.Value, string(value.Propagation)
	case clusterv1.MachineReadinessGate:
		e.Value = string(value.Polarity)
	case string:
		e.Value = value
		if parsed, err := taint.Parse(value); err == nil && one.What == taintWord {
			e.Value = parsed.Value
		}
	default:
		e.Value = fmt.Sprint(value)
	}
	return e
}

// String returns the entry as people write it.
func (e Entry) String() string {
	text := e.Kind + " " + e.Key
	id, effect, isTaint := strings.Cut(e.Key, ":")
	switch {
	case e.Kind == taintWord && isTaint && e.Value != "":
		text = fmt.Sprintf("%s %s=%s:%s", e.Kind, id, shorten(e.Value), effect)
	case e.Kind != taintWord && e.Value != "":
		text += "=" + shorten(e.Value)
	}
	if e.Propagation == string(clusterv1.MachineTaintPropagationOnInitialization) {
		text += " (once)"
	}
	return text
}

// widest is how much of a value a line shows, in characters. Annotations can be long.
const widest = 48

func shorten(value string) string {
	value = strings.Join(strings.Fields(value), " ")
	if runes := []rune(value); len(runes) > widest {
		return string(runes[:widest-1]) + "…"
	}
	return value
}
