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

// Result is a command's answer.
type Result interface {
	// Table is the answer for people. A wide one has more columns.
	Table(wide bool) *metav1.Table
}

// Painted is a Result whose table may have colours.
type Painted interface {
	Result
	Colours() Painter
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
	if output := command.Flags().Lookup("output"); output != nil {
		formats := p.formats()
		output.Usage = "Output format. One of: (" + strings.Join(formats, ", ") + ")."
		if err := command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // somebody else completes this flag: a fault of the command
		}
	}
}

func (p *PrintFlags) formats() []string {
	return slices.Concat([]string{"table", "wide"}, p.flags.AllowedFormats(), p.own)
}

// Format returns the format.
func (p *PrintFlags) Format() string { return *p.flags.OutputFormat }

// ForPeople reports whether the output is a table, to which a command may add notes; a program reads all other formats.
func (p *PrintFlags) ForPeople() bool {
	switch *p.flags.OutputFormat {
	case "", "table", "wide":
		return true
	}
	return false
}

// Validate checks the flags, before anything is read.
func (p *PrintFlags) Validate() error {
	if p.ForPeople() || slices.Contains(p.own, p.Format()) {
		return nil
	}
	_, err := p.flags.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return fmt.Errorf("--output=%q: must be one of %s", *p.flags.OutputFormat, strings.Join(p.formats(), ", "))
	}
	if err != nil {
		return fmt.Errorf("--output=%q: %w", *p.flags.OutputFormat, err)
	}
	return nil
}

// Print prints a command's answer.
func (p *PrintFlags) Print(w io.Writer, result Result) error {
	if p.ForPeople() {
		return printTable(w, result, *p.flags.OutputFormat == "wide")
	}
	if *p.flags.OutputFormat == "name" {
		return printNames(w, result)
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

// printTable prints a table. The printer makes all escape sequences harmless, and those of a Painter are put back.
func printTable(w io.Writer, result Result, wide bool) error {
	var text strings.Builder
	if err := printers.NewTablePrinter(printers.PrintOptions{Wide: true}).PrintObj(result.Table(wide), &text); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	painted, ok := result.(Painted)
	if !ok || !bool(painted.Colours()) {
		_, err := io.WriteString(w, text.String())
		return err
	}
	var harmless []string
	for _, sequence := range []string{string(Good), string(Warn), string(Bad), string(Dim), string(Bold), reset} {
		harmless = append(harmless, printers.EscapeTerminal(sequence), sequence)
	}
	_, err := strings.NewReplacer(harmless...).WriteString(w, text.String())
	return err
}

func printNames(w io.Writer, result Result) error {
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
