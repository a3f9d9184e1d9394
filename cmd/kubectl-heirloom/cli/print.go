// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Style is the style of a word. It never says anything that the words do not.
type Style string

// The styles.
const (
	Good Style = "\x1b[32m"
	Warn Style = "\x1b[33m"
	Bad  Style = "\x1b[31m"
	Dim  Style = "\x1b[2m"
	Bold Style = "\x1b[1m"
)

// Painter colours words, or leaves them as they are.
type Painter bool

// Painter returns the Painter for an output, by --color, the terminal and NO_COLOR (https://no-color.org).
func (f *Factory) Painter(w io.Writer) Painter {
	return Painter(f.Color == "always" || f.Color != "never" && printers.AllowsColorOutput(w))
}

// Paint returns text in a style, with its own escape sequences made harmless. In a table, use a Cell.
func (p Painter) Paint(style Style, text string) string {
	text = Escape(text)
	if !p || style == "" || text == "" {
		return text
	}
	return string(style) + text + "\x1b[0m"
}

// Cell is a cell of a table with a style.
type Cell struct {
	Style Style
	Text  string
}

// String returns the text alone, for other printers.
func (c Cell) String() string { return c.Text }

// Result is an answer that has a table.
type Result interface {
	// Table returns the answer for people. A wide table has more columns. Cells are strings or Cells.
	Table(wide bool) *metav1.Table
}

// Columns returns the columns of a table.
func Columns(names ...string) (columns []metav1.TableColumnDefinition) {
	for _, name := range names {
		columns = append(columns, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	return columns
}

// Named is an answer about objects that have names, for --output=name.
type Named interface {
	// Names returns "<kind>.<group>/<name>" for each object, as kubectl prints it, with a lower-case kind.
	Names() []string
}

// NameOf returns the name of an object for Named.
func NameOf(kind schema.GroupKind, name string) string {
	kind.Kind = strings.ToLower(kind.Kind)
	return kind.String() + "/" + name
}

// PrintFlags are --output and related flags: table, wide, the formats of kubectl, and own formats that the command prints itself.
type PrintFlags struct {
	flags *genericclioptions.PrintFlags
	own   []string
}

// NewPrintFlags returns the flags with a table as default.
func NewPrintFlags(own ...string) *PrintFlags {
	flags := genericclioptions.NewPrintFlags("")
	flags.OutputFormat = new("")
	return &PrintFlags{flags: flags, own: own}
}

// WithoutNames removes --output=name, for answers about things without names.
func (p *PrintFlags) WithoutNames() *PrintFlags {
	p.flags.NamePrintFlags = nil
	return p
}

// AddFlags adds the flags to a command.
func (p *PrintFlags) AddFlags(command *cobra.Command) {
	p.flags.AddFlags(command)
	for _, rare := range []string{"allow-missing-template-keys", "show-managed-fields", "template"} {
		_ = command.Flags().MarkHidden(rare) // they hardly change an answer
	}
	command.Flags().Lookup("output").Usage = "Output format. One of: (" + strings.Join(p.formats(), ", ") + ")."
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(p.formats(), cobra.ShellCompDirectiveNoFileComp))
}

func (p *PrintFlags) formats() []string {
	return slices.Concat([]string{"table", "wide"}, p.flags.AllowedFormats(), p.own)
}

// Format returns the format.
func (p *PrintFlags) Format() string { return *p.flags.OutputFormat }

// ForPeople reports whether the output is a table, to which a command may add notes; a program reads all other formats.
func (p *PrintFlags) ForPeople() bool {
	return slices.Contains([]string{"", "table", "wide"}, p.Format())
}

// Validate checks the flags, before anything is read.
func (p *PrintFlags) Validate() error {
	if p.ForPeople() || slices.Contains(p.own, p.Format()) {
		return nil
	}
	_, err := p.flags.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		err = fmt.Errorf("must be one of %s", strings.Join(p.formats(), ", "))
	}
	if err != nil {
		return fmt.Errorf("--output=%q: %w", p.Format(), err)
	}
	return nil
}

// Print prints a command's answer. An answer that is no Result is for programs.
func (p *PrintFlags) Print(w io.Writer, paint Painter, answer any) error {
	result, hasTable := answer.(Result)
	named, hasNames := answer.(Named)
	switch {
	case p.ForPeople() && hasTable:
		return printTable(w, paint, result.Table(p.Format() == "wide"))
	case p.Format() == "name" && hasNames:
		_, err := io.WriteString(w, strings.Join(append(named.Names(), ""), "\n"))
		return err
	}
	printer, err := p.flags.ToPrinter()
	if err != nil {
		return err
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(answer)
	if err != nil {
		return fmt.Errorf("converting the answer: %w", err)
	}
	return printer.PrintObj(&unstructured.Unstructured{Object: object}, w)
}

// printTable prints a table as kubectl does, with all escape sequences in it made harmless, and with colours.
func printTable(w io.Writer, paint Painter, table *metav1.Table) error {
	if len(table.Rows) == 0 {
		return nil // as kubectl does
	}
	lines := make([]string, len(table.Rows)+1)
	for j, column := range table.ColumnDefinitions {
		cells, width := []Cell{{Text: strings.ToUpper(column.Name)}}, 3 // as in kubectl's table printer
		for _, row := range table.Rows {
			cell, styled := row.Cells[j].(Cell)
			if !styled {
				cell.Text = fmt.Sprint(row.Cells[j])
			}
			cell.Text = Escape(strings.NewReplacer("\n", " ", "\r", " ", "\f", " ").Replace(cell.Text))
			cells, width = append(cells, cell), max(width, utf8.RuneCountInString(cell.Text))
		}
		width = max(width, len(column.Name)) + 3
		for i, cell := range cells {
			lines[i] += paint.Paint(cell.Style, cell.Text)
			if j < len(table.ColumnDefinitions)-1 {
				lines[i] += strings.Repeat(" ", width-utf8.RuneCountInString(cell.Text))
			}
		}
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err //nolint:wrapcheck // the reader is gone
		}
	}
	return nil
}

// DryRun returns the value of kubectl's flag --dry-run. Its code warns in the log, which is silent here.
func (f *Factory) DryRun(command *cobra.Command) (cmdutil.DryRunStrategy, error) {
	strategy, err := cmdutil.GetDryRunStrategy(command)
	if value := command.Flag("dry-run").Value.String(); err == nil && !slices.Contains([]string{"none", "client", "server"}, value) {
		_, _ = fmt.Fprintln(f.ErrOut, "Warning: --dry-run without none, client or server is deprecated: use --dry-run=client")
	}
	return strategy, err
}

// Exit codes of all commands, as of kubectl diff: 1 for differences, findings or failed checks; 2 if the question could not be answered.
const (
	ExitOK     = 0
	ExitFound  = 1
	ExitFailed = 2
)

// ErrFound ends a command with ExitFound. The command has already said what it found.
var ErrFound = errors.New("differences, findings or failed checks")

// ExitCode returns the exit code for a command's error. ErrFound joined with another error is a failure.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return ExitOK
	case Sentence(err) == "":
		return ExitFound
	}
	return ExitFailed
}

// NotFound says that an object does not exist, in kubectl's words. Without a namespace, the kind is cluster-scoped.
func NotFound(kind string, key types.NamespacedName) error {
	err := apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
	err.ErrStatus.Message = fmt.Sprintf("%s %q not found", kind, key.Name)
	if key.Namespace != "" {
		err.ErrStatus.Message += fmt.Sprintf(" in namespace %q (use -n)", key.Namespace)
	}
	return err
}

// Sentence says what went wrong. Joined errors become lines without duplicates. ErrFound becomes "".
func Sentence(err error) string {
	if err == nil {
		return ""
	}
	line := err.Error()
	if several, ok := err.(interface{ Unwrap() []error }); ok && errors.Join(several.Unwrap()...).Error() == line {
		var lines []string
		for _, one := range several.Unwrap() {
			if line := Sentence(one); line != "" && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "\n")
	}
	var unreached *url.Error
	switch {
	case errors.Is(err, ErrFound):
		return "" // the command has said it
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.As(err, &unreached):
		if says, ok := cmdutil.StandardErrorMessage(unreached); ok {
			return strings.Replace(line, unreached.Error(), says, 1)
		}
	}
	return line
}

// Count returns a number with its noun.
func Count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s") || strings.HasSuffix(noun, "x"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Some names the first of some names, and says how many more there are.
func Some(names []string, first int) string {
	if len(names) > first {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:first], ", "), len(names)-first)
	}
	return strings.Join(names, ", ")
}

// OneLine returns an error as a part of a sentence. Joined errors have a line each.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// ToSync says what to do so that a label or an annotation of Machines reaches their Nodes, if no rule propagates it.
func ToSync(p inherit.Policy, e inherit.Entry) string {
	lists, regex := "Labels", "^"+regexp.QuoteMeta(e.Name)+"$"
	if e.What == "annotation" {
		lists = "Annotations"
	}
	add := fmt.Sprintf("add %q to the chart's value additionalSyncMachine%s (--additional-sync-machine-%s)", regex, lists, strings.ToLower(lists))
	if named := p.NamedBy(e); named != "" {
		add = fmt.Sprintf("name it in the annotation %s of the Cluster, or %s", named, add)
	}
	return "To propagate it to Nodes, " + add + "."
}

// Escape makes a text harmless that others have written: escape sequences, as kubectl does, other control characters, and characters that
// change the direction of a text. Lines and tabs stay.
func Escape(text string) string {
	var safe strings.Builder
	for _, r := range printers.EscapeTerminal(text) {
		switch {
		case r == '\n' || r == '\t':
			safe.WriteRune(r)
		case r < ' ':
			safe.WriteString("^" + string(r+'@'))
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			fmt.Fprintf(&safe, `\u%04x`, r)
		default:
			safe.WriteRune(r)
		}
	}
	return safe.String()
}

// Flat returns a value on one line.
func Flat(value string) string { return strings.Join(strings.Fields(value), " ") }
