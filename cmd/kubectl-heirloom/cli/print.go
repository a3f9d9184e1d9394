// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
)

// Style is how a word stands out.
type Style string

// The styles. Colour never says anything that the words do not.
const (
	Good Style = "\x1b[32m"
	Warn Style = "\x1b[33m"
	Bad  Style = "\x1b[31m"
	Dim  Style = "\x1b[2m"
	Bold Style = "\x1b[1m"
)

// Painter colours words, or leaves them as they are.
type Painter bool

// Paint returns text in a style. Escape sequences in the text are made harmless, as in a table. In a table, use a Cell.
func (p Painter) Paint(style Style, text string) string {
	text = printers.EscapeTerminal(text)
	if !p || style == "" || text == "" {
		return text
	}
	return string(style) + text + "\x1b[0m"
}

// Painter returns what --color, the terminal and NO_COLOR (https://no-color.org) say about an output.
func (f *Factory) Painter(w io.Writer) Painter {
	return Painter(f.Color == "always" || f.Color != "never" && printers.AllowsColorOutput(w))
}

// Cell is a cell of a table that stands out.
type Cell struct {
	Style Style
	Text  string
}

// String returns the text alone.
func (c Cell) String() string { return c.Text }

// Result is a command's answer.
type Result interface {
	// Table is the answer for people. A wide one has more columns. Cells are strings or Cells.
	Table(wide bool) *metav1.Table
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

// PrintFlags are --output and what belongs to it: table, wide, json, yaml, kyaml, name, jsonpath, go-template and their files.
type PrintFlags struct {
	flags *genericclioptions.PrintFlags
	// own are formats that the command prints itself.
	own []string
}

// NewPrintFlags returns the flags with a table as default, and with formats that the command prints itself.
func NewPrintFlags(own ...string) *PrintFlags {
	flags := genericclioptions.NewPrintFlags("")
	flags.OutputFormat = new("")
	return &PrintFlags{flags: flags, own: own}
}

// WithoutNames leaves out --output=name, for answers about something that has no names.
func (p *PrintFlags) WithoutNames() *PrintFlags {
	p.flags.NamePrintFlags = nil
	return p
}

// AddFlags adds the flags to a command.
func (p *PrintFlags) AddFlags(command *cobra.Command) {
	p.flags.AddFlags(command)
	formats := p.formats()
	command.Flags().Lookup("output").Usage = "Output format. One of: (" + strings.Join(formats, ", ") + ")."
	if err := command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // somebody else completes this flag: a fault of the command
	}
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
		return fmt.Errorf("--output=%q: must be one of %s", p.Format(), strings.Join(p.formats(), ", "))
	}
	if err != nil {
		return fmt.Errorf("--output=%q: %w", p.Format(), err)
	}
	return nil
}

// Print prints a command's answer.
func (p *PrintFlags) Print(w io.Writer, paint Painter, result Result) error {
	if p.ForPeople() {
		return printTable(w, paint, result.Table(p.Format() == "wide"))
	}
	if p.Format() == "name" {
		named, ok := result.(Named)
		if !ok {
			return errors.New("--output=name: this answer is not about objects that have names, so choose another format")
		}
		for _, name := range named.Names() {
			if _, err := fmt.Fprintln(w, name); err != nil {
				return fmt.Errorf("printing names: %w", err)
			}
		}
		return nil
	}
	printer, err := p.flags.ToPrinter()
	if err != nil {
		return err
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(result)
	if err != nil {
		return fmt.Errorf("converting the answer: %w", err)
	}
	return printer.PrintObj(&unstructured.Unstructured{Object: object}, w)
}

// printTable prints a table. kubectl's printer makes all escape sequences in it harmless and aligns it; colours come after that.
func printTable(w io.Writer, paint Painter, table *metav1.Table) error {
	styles := make([]map[int]Style, len(table.Rows))
	for i, row := range table.Rows {
		styles[i] = map[int]Style{}
		for j, value := range row.Cells {
			if cell, ok := value.(Cell); ok {
				row.Cells[j], styles[i][j] = cell.Text, cell.Style
			}
		}
	}
	var text strings.Builder
	if err := printers.NewTablePrinter(printers.PrintOptions{Wide: true}).PrintObj(table, &text); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	lines := strings.SplitAfter(text.String(), "\n")
	if len(styles) == 0 {
		return nil // the printer leaves out the names of columns, too
	}
	starts := startsOf(lines[0], table.ColumnDefinitions)
	for i, style := range styles {
		lines[i+1] = painted(lines[i+1], paint, starts, style)
	}
	_, err := io.WriteString(w, strings.Join(lines, ""))
	return err
}

// startsOf returns where in a line each column begins, in characters.
func startsOf(header string, columns []metav1.TableColumnDefinition) []int {
	var starts []int
	at := 0
	for _, column := range columns {
		at += strings.Index(header[at:], strings.ToUpper(column.Name))
		starts = append(starts, len([]rune(header[:at])))
		at += len(column.Name)
	}
	return starts
}

// painted returns a line of a table with colours.
func painted(line string, paint Painter, starts []int, styles map[int]Style) string {
	var out strings.Builder
	rest := []rune(line)
	for i := range starts {
		width := len(rest)
		if i < len(starts)-1 {
			width = min(width, starts[i+1]-starts[i])
		}
		cell := string(rest[:width])
		word := strings.TrimRight(cell, " \n")
		out.WriteString(paint.Paint(styles[i], word) + cell[len(word):])
		rest = rest[width:]
	}
	return out.String()
}
