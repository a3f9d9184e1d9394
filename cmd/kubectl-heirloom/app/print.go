// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/origin"
)

// widest is how much of a value the table shows, in characters. Annotations can be long.
const widest = 48

// printer shows an explanation.
type printer func(*cobra.Command, *origin.Explanation) error

// printerFor returns the printer of a format; without one, that of the table.
func printerFor(format string) (printer, error) {
	if format == "" {
		return printTable, nil
	}
	objects, err := genericclioptions.NewJSONYamlPrintFlags().ToPrinter(format)
	if err != nil {
		return nil, fmt.Errorf("--output=%q: must be json, yaml or kyaml", format)
	}
	return func(cmd *cobra.Command, e *origin.Explanation) error {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(e)
		if err != nil {
			return fmt.Errorf("converting the explanation: %w", err)
		}
		return objects.PrintObj(&unstructured.Unstructured{Object: object}, cmd.OutOrStdout())
	}, nil
}

// printTable writes the table to standard output, and what else there is to say to standard error.
func printTable(cmd *cobra.Command, e *origin.Explanation) error {
	if err := printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(table(e), cmd.OutOrStdout()); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	for _, note := range e.Notes {
		if _, err := fmt.Fprintln(cmd.ErrOrStderr(), "Note: "+note); err != nil {
			return err
		}
	}
	return nil
}

func table(e *origin.Explanation) *metav1.Table {
	t := &metav1.Table{}
	for _, name := range []string{"Kind", "Key", "Value", "From"} {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, entry := range e.Entries {
		from := entry.From
		if entry.Inherited && entry.OwnedByHeirloom {
			from += " (owned by heirloom)"
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{string(entry.Kind), entry.Key, shorten(entry.Value), from}})
	}
	return t
}

func shorten(value string) string {
	if runes := []rune(value); len(runes) > widest {
		return string(runes[:widest-1]) + "…"
	}
	return value
}
