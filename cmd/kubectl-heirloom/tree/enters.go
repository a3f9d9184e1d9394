// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"cmp"
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// entering is what objects inherit, by the uppermost object that declares it.
type entering map[object]*declared

// object names an object.
type object struct {
	kind string
	types.NamespacedName
}

// declared are the entries of one object.
type declared struct {
	entries []Entry
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
			return cmp.Or(cmp.Compare(place(kinds, a.Kind), place(kinds, b.Kind)), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
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
	plan, err := managedfields.New(&metav1.ObjectMeta{}, nothing, m.Decided.Decision, nil)
	if err != nil {
		return nil // only managed fields can be wrong, and there are none
	}
	var all []inherited
	for _, change := range plan.Changes() {
		if !slices.Contains(inherit.CapacityAnnotations, change.Name) { // the object's own, made of what enters elsewhere
			all = append(all, inherited{change.Entry, change.Value})
		}
	}
	return all
}

// ofNode is the same for a Node.
func (b Builder) ofNode(node *snapshot.NodeMember) []inherited {
	state, _ := b.Policy.Node(node.Decided.Source, inherit.NodeState{}, inherit.Privileged)
	var all []inherited
	for _, key := range inherit.Brought(inherit.NodeState{}, state) {
		one := inherited{Entry: key.Entry}
		switch one.What {
		case labelWord:
			one.value = state.Labels[one.Name]
		case annotationWord:
			one.value = state.Annotations[one.Name]
		default:
			one.value = key.Text()
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

// add adds an entry to the object that declares it. A taint that is declared by annotation enters as that annotation, and an
// annotation that a topology declares as a taint enters as the taint.
func (e entering) add(one inherited, sources inherit.Sources, branch string) {
	source := sources.Of(one.Entry)
	if source.Object == nil || strings.HasSuffix(source.Field, "["+taint.AlwaysAnnotation+"]") || strings.HasSuffix(source.Field, "["+taint.InitializeAnnotation+"]") {
		return
	}
	found := e[nameOf(source.Ref)]
	if found == nil {
		found = &declared{}
		e[nameOf(source.Ref)] = found
	}
	at := slices.IndexFunc(sources.All, func(d inherit.Declaration) bool { return d.Ref == source.Ref })
	for _, entry := range entriesAt(sources.All[at], one) {
		entry.Fields = []string{source.Field}
		if source.Kind == clusterKind || source.Kind == classKind {
			entry.For = []string{branch}
		}
		found.add(entry)
	}
}

// add adds an entry. One that is declared for several objects of a topology is there once.
func (d *declared) add(entry Entry) {
	at := slices.IndexFunc(d.entries, func(known Entry) bool { return known.same(entry) })
	if at < 0 {
		d.entries = append(d.entries, entry)
		return
	}
	known := &d.entries[at]
	known.Fields, known.For = union(known.Fields, entry.Fields), union(known.For, entry.For)
}

func union(a, b []string) []string {
	for _, one := range b {
		if !slices.Contains(a, one) {
			a = append(a, one)
		}
	}
	return a
}

// same reports whether two entries say the same.
func (e Entry) same(other Entry) bool {
	return e.Kind == other.Kind && e.Key == other.Key && e.Value == other.Value && e.Propagation == other.Propagation
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
