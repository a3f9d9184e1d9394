// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const apiVersion = "cli.heirloom.dev/v1alpha1"

// Explanation is the answer for an object.
type Explanation struct {
	metav1.TypeMeta `json:",inline"`
	// Object is the explained object, "<kind> <namespace>/<name>", and Cluster the Cluster of a Node, "<namespace>/<name>".
	Object  string `json:"object"`
	Cluster string `json:"cluster,omitempty"`
	// Entries are sorted by kind and key. Notes are sentences about the whole object.
	Entries []Entry  `json:"entries"`
	Notes   []string `json:"notes,omitempty"`

	of    *compare.Object `json:"-"`
	named string          `json:"-"`
}

// Entry is an entry of an object, or a declaration for it that did not arrive.
type Entry struct {
	compare.Entry `json:",inline"`

	// at is the object at which the entry has stopped; because is the explanation, and fix the advice, both with the placeholder "{at}".
	at           inherit.Ref `json:"-"`
	because, fix string      `json:"-"`
	// by is the object that declares the entry. ofItself says that this object has the entry only in its own metadata, replaced that a
	// topology replaces the entry.
	by                 inherit.Declaration `json:"-"`
	ofItself, replaced bool                `json:"-"`
}

// List is the answer for any number of objects.
type List struct {
	metav1.TypeMeta `json:",inline"`
	Items           []*Explanation `json:"items"`
	// Notes are sentences about all objects.
	Notes []string `json:"notes,omitempty"`

	// Key is the only key of interest; empty for all keys. Single says that the user asked for one object. All also shows bookkeeping, and
	// entries that are set on the objects themselves.
	Key         string `json:"-"`
	Single, All bool   `json:"-"`
}

// Names implements cli.Named.
func (e *Explanation) Names() []string { return []string{e.named} }

// Names implements cli.Named. With -o name, "explain" lists the objects that it would explain, for example for xargs.
func (l *List) Names() (names []string) {
	for _, e := range l.Items {
		names = append(names, e.named)
	}
	return names
}

// Wrong reports whether an entry is missing or differs, or an object does not have the key of interest.
func (l *List) Wrong() bool {
	return slices.ContainsFunc(l.Items, func(e *Explanation) bool {
		return slices.ContainsFunc(e.Entries, func(entry Entry) bool { return entry.Status.Wrong() }) ||
			l.Key != "" && !slices.ContainsFunc(e.Entries, func(entry Entry) bool { return entry.Status != compare.Absent })
	})
}

// Print prints the answer. For people, objects with the same answer share a text.
func (l *List) Print(w io.Writer, flags *cli.PrintFlags, paint cli.Painter) error {
	l.TypeMeta = metav1.TypeMeta{APIVersion: apiVersion, Kind: "ExplanationList"}
	switch {
	case !flags.ForPeople() && !l.Single:
		return flags.Print(w, paint, l)
	case !flags.ForPeople():
		l.Items[0].Notes = slices.Concat(l.Notes, l.Items[0].Notes)
		return flags.Print(w, paint, l.Items[0])
	}
	same, order, parts := map[string][]*Explanation{}, []string{}, []string{}
	for _, e := range l.Items {
		text := l.text(flags, paint, 0, e)
		if same[text] = append(same[text], e); len(same[text]) == 1 {
			order = append(order, text)
		}
	}
	for _, text := range order {
		parts = append(parts, l.text(flags, paint, len(same[text]), same[text]...))
	}
	if len(parts) == 0 {
		parts = append(parts, "There is nothing to explain.\n")
	}
	if len(l.Notes) > 0 {
		parts = append(parts, paint.Paint("", strings.Join(l.Notes, "\n")+"\n"))
	}
	_, err := io.WriteString(w, strings.Join(parts, "\n"))
	return err
}

// text returns the answer for objects that share it. With count 0, it names no object, so that equal answers are equal texts.
func (l *List) text(flags *cli.PrintFlags, paint cli.Painter, count int, of ...*Explanation) string {
	var text strings.Builder
	say := func(style cli.Style, first, rest string) {
		text.WriteString(paint.Paint(style, first) + paint.Paint("", rest) + "\n")
	}
	e, names := of[0], []string{}
	for _, e := range of[:count] {
		names = append(names, e.Object)
	}
	title := cli.Some(names, 3)
	if e.Cluster != "" {
		title += " of Cluster " + e.Cluster
	}
	trace := l.Key != "" && flags.Format() != "wide"
	if trace && len(e.Entries) == 0 || !trace && !l.Single {
		say(cli.Bold, title, "")
	}
	for i := range e.Entries {
		if trace {
			e.trace(&e.Entries[i], count, title, say)
		}
	}
	if !trace {
		e.table(&text, flags, paint, l.All || l.Key != "")
	}
	for _, note := range e.Notes {
		say("", note, "")
	}
	return strings.TrimRight(text.String(), "\n") + "\n"
}

// trace follows an entry from the object that declares it to the explained object, or to several objects that share the answer.
func (e *Explanation) trace(entry *Entry, count int, title string, say func(style cli.Style, first, rest string)) {
	steps := e.steps(entry)
	title += ": " + entry.what() + " " + entry.Status.Phrase()
	if at := slices.IndexFunc(steps, func(s step) bool { return !s.fine }); at >= 0 && entry.Status == compare.Declared {
		title += ", but " + steps[at].String() + " differs"
	}
	say(cli.Bold, title, "")
	each := func(ref inherit.Ref) string {
		if count == 1 || ref.Kind != "Machine" && !same(ref, e.of.Ref) { // each of several Nodes has its own Machine
			return ref.String()
		}
		return "each of these " + ref.Kind + "s"
	}
	for _, s := range steps {
		if s.fine {
			say(cli.Good, "✓ ", each(s.Ref)+s.has)
		} else {
			say(cli.Bad, "✗ ", each(s.Ref)+s.has)
		}
	}
	if entry.Status == compare.Differs && entry.Declared == nil {
		say("", "No owner declares it any longer: the next write of Heirloom removes it.", "")
	}
	if entry.Reason != "" {
		because := strings.ReplaceAll(entry.because, "{at}", each(entry.at))
		say("", entry.Reason+": "+strings.ToUpper(because[:1])+because[1:], "")
	} else if e.of.Skipped != "" {
		say("", fmt.Sprintf("Heirloom skips %s for now, because %s.", each(e.of.Ref), e.of.Skipped), "")
	}
	if entry.fix != "" {
		say("", "Fix: "+strings.ReplaceAll(entry.fix, "{at}", each(entry.at)), "")
	}
	say("", "", "")
}

// what formats the entry as users write it.
func (e *Entry) what() string {
	key, effect, isTaint := strings.Cut(e.Key, ":")
	if e.Value != "" {
		key += "=" + cli.Flat(e.Value)
	}
	if isTaint {
		key += ":" + effect
	}
	return strings.TrimSpace(string(e.Kind) + " " + key + propagated(e.Propagation))
}

// step is an object on the way of an entry, and its state there. It is fine if the entry has arrived.
type step struct {
	inherit.Ref
	has  string
	fine bool
}

// stepAt returns the step at a field of an object.
func (e *Entry) stepAt(ref inherit.Ref, field, value string, there, fine bool) step {
	now := Entry{Entry: compare.Entry{Key: e.Key, Value: value}}
	has := ": " + field + " = " + cmp.Or(cli.Flat(value), `""`)
	switch {
	case e.Of.What == "":
		has = " has no " + e.Key
	case !there && e.Of.What == "field" && e.Of.Name == e.Key:
		has = ": " + field + " is not set"
	case !there:
		has = ": " + field + " has no " + e.Key
	case e.Of.What == taint:
		has = ": " + field + " has " + now.what()
	}
	return step{ref, has, fine}
}

// steps returns the way of an entry from the object that declares it to the explained object.
func (e *Explanation) steps(entry *Entry) (steps []step) {
	want, all := entry.Value, !entry.ofItself && entry.Reason != string(overriddenAbove)
	if entry.Declared != nil {
		want = *entry.Declared
	}
	for _, d := range e.of.Sources.All {
		value, there := d.Value(entry.Of)
		switch {
		case entry.From.Object == nil || e.of.Declares() || same(d.Ref, e.of.Ref):
		case same(d.Ref, entry.From.Ref):
			steps = append([]step{entry.stepAt(d.Ref, entry.From.Field, want, true, true)}, steps...)
		case all && len(steps) > 0 && d.Kind != "ClusterClass", !all && same(d.Ref, entry.at):
			steps = append(steps, entry.stepAt(d.Ref, fieldIn(d, entry.Of), value, there, there && value == want))
		}
	}
	return append(steps, e.last(entry))
}

// last returns the step at the explained object itself.
func (e *Explanation) last(entry *Entry) step {
	for _, now := range e.of.Entries {
		if now.Kind == entry.Kind && now.Key == entry.Key && now.Status != compare.Missing && (!e.of.Declares() || now.Field == entry.Field) {
			fine := entry.Status == compare.Declared || entry.Status == compare.Local && entry.Declared == nil
			last := entry.stepAt(e.of.Ref, now.Field, now.Value, true, fine)
			if last.has += propagated(now.Propagation); len(now.Managers) > 0 {
				last.has += " (" + setBy(&now) + ")"
			}
			return last
		}
	}
	paths := pathsOf(e.of, !strings.HasPrefix(string(entry.Kind), "template "))
	return entry.stepAt(e.of.Ref, cmp.Or(entry.Field, fieldIn(inherit.Declaration{Ref: e.of.Ref, Paths: paths}, entry.Of)), "", false, false)
}

func fieldIn(d inherit.Declaration, e inherit.Entry) string {
	return inherit.Sources{All: []inherit.Declaration{d}}.Of(e).Field
}

func propagated(propagation string) string {
	if propagation == "" || propagation == "Always" {
		return ""
	}
	return fmt.Sprintf(" (%s)", propagation)
}

// setBy says who owns an entry. The last writer of a list may not have added each of its taints.
func setBy(e *compare.Entry) string {
	switch by := strings.Join(e.Managers, ", "); {
	case by == "":
		return "unknown"
	case e.WholeList:
		return "the list of taints was last written by " + by
	default:
		return "set by " + by
	}
}

// table prints the entries and, below them, the reasons of entries that are not as declared.
func (e *Explanation) table(w *strings.Builder, flags *cli.PrintFlags, paint cli.Painter, all bool) {
	shows := *e
	shows.Entries = slices.DeleteFunc(slices.Clone(e.Entries), func(entry Entry) bool {
		return !all && !e.of.Declares() && entry.Status == compare.Local && entry.Reason == ""
	})
	if len(shows.Entries) > 0 {
		_ = flags.Print(w, paint, &shows) // a strings.Builder returns no error
	}
	for _, entry := range shows.Entries {
		if entry.Reason != "" {
			w.WriteString(paint.Paint("", fmt.Sprintf("%s: %s: %s\n", entry.Status, entry.what(), entry.Reason)))
		}
	}
	if hidden := len(e.Entries) - len(shows.Entries); hidden > 0 {
		fmt.Fprintf(w, "Hidden: %d (set on this object, or bookkeeping; use --show-all)\n", hidden)
	}
}

// Table implements cli.Result.
func (e *Explanation) Table(wide bool) *metav1.Table {
	names, rows := []string{"Kind", "Key", "Value", "Status", "From", "Rule", "Managers", "Steps"}, [][]string{}
	for i := range e.Entries {
		entry := &e.Entries[i]
		text := cli.Flat(entry.Value) + propagated(entry.Propagation)
		if entry.Declared != nil {
			text += fmt.Sprintf(" (declared: %s%s)", cli.Flat(*entry.Declared), propagated(entry.DeclaredPropagation))
		} else if entry.Status == compare.Differs {
			text += " (no longer declared)"
		}
		managers, steps := strings.Join(append(entry.Managers, entry.Records...), ", "), strings.Join(entry.Steps, " → ")
		rows = append(rows, []string{
			string(entry.Kind), entry.Key, strings.TrimSpace(text), string(entry.Status), e.from(entry, wide),
			cmp.Or(entry.Rule, "<none>"), cmp.Or(managers, "<none>"), cmp.Or(steps, "<none>"),
		})
	}
	if !wide {
		names = names[:5]
	}
	t := &metav1.Table{ColumnDefinitions: cli.Columns(names...)}
	styles := map[compare.Status]cli.Style{compare.Missing: cli.Bad, compare.Differs: cli.Bad, compare.Absent: cli.Warn}
	for i, row := range rows {
		cells := []any{row[0], row[1], row[2], cli.Cell{Text: row[3], Style: styles[e.Entries[i].Status]}, row[4], row[5], row[6], row[7]}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: cells[:len(names)]})
	}
	return t
}

// section matches the section of a topology or a class in the path of a field.
var section = regexp.MustCompile(`controlPlane|\w+\[[^\]]*\]`)

// from says where an entry comes from: the object and, in a wide table, the field.
func (e *Explanation) from(entry *Entry, wide bool) string {
	switch {
	case e.of.Declares() && wide:
		return entry.From.Field
	case e.of.Declares():
		return section.FindString(entry.From.Field)
	case entry.Record:
		return "bookkeeping"
	case entry.Source == nil && entry.WholeList && !wide:
		return "unknown"
	case entry.Source == nil:
		return strings.TrimPrefix(setBy(&entry.Entry), "set ")
	case wide:
		return entry.From.String()
	}
	return entry.Source.Kind + "/" + entry.Source.Name
}
