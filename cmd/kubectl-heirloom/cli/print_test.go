// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answer is one as commands give it.
type answer struct {
	metav1.TypeMeta `json:",inline"`
	Items           []item `json:"items"`
}

type item struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func (a *answer) Table(wide bool) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{{Name: "Key", Type: "string"}}}
	if wide {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: "Value", Type: "string"})
	}
	for _, item := range a.Items {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{item.Key, item.Value}[:len(t.ColumnDefinitions)]})
	}
	return t
}

// namedAnswer also has names.
type namedAnswer struct{ answer }

func (namedAnswer) Names() []string { return []string{"machine.cluster.x-k8s.io/a", "node/b"} }

func example() answer {
	return answer{
		TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "Answer"},
		Items:    []item{{"pool", "gpu"}, {"a-long-key", "x"}},
	}
}

// printed is what a command prints with that --output.
func printed(t *testing.T, result Result, output string) (string, error) {
	t.Helper()
	flags, command := NewPrintFlags(), &cobra.Command{}
	flags.AddFlags(command)
	NewWithT(t).Expect(command.ParseFlags([]string{"--output=" + output})).To(Succeed())
	if err := flags.Validate(); err != nil {
		return "", err
	}
	var out bytes.Buffer
	err := flags.Print(&out, false, result)
	return out.String(), err
}

func TestPrintFormats(t *testing.T) {
	template := filepath.Join(t.TempDir(), "template")
	NewWithT(t).Expect(os.WriteFile(template, []byte("{{len .items}} items\n"), 0o600)).To(Succeed())
	const table = "KEY\npool\na-long-key\n"
	for output, want := range map[string]string{
		"":      table,
		"table": table,
		"wide":  "KEY          VALUE\npool         gpu\na-long-key   x\n",
		"json": `{
    "apiVersion": "cli.heirloom.dev/v1alpha1",
    "items": [
        {
            "key": "pool",
            "value": "gpu"
        },
        {
            "key": "a-long-key",
            "value": "x"
        }
    ],
    "kind": "Answer"
}
`,
		"yaml":                              "apiVersion: cli.heirloom.dev/v1alpha1\nitems:\n- key: pool\n  value: gpu\n- key: a-long-key\n  value: x\nkind: Answer\n",
		"jsonpath={.items[0].value}":        "gpu",
		"go-template={{.kind}}":             "Answer",
		"go-template-file=" + template:      "2 items\n",
		`jsonpath={.items[*]['key']}{"\n"}`: "pool a-long-key\n",
		"name":                              "machine.cluster.x-k8s.io/a\nnode/b\n",
	} {
		t.Run(output, func(t *testing.T) {
			g := NewWithT(t)
			out, err := printed(t, &namedAnswer{example()}, output)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(Equal(want))
		})
	}
}

func TestWrongFormatsAreRefused(t *testing.T) {
	plain := example()
	for output, says := range map[string]string{
		"xml":        `--output="xml": must be one of table, wide, `,
		"jsonpath={": `--output="jsonpath={": `,
		"name":       "--output=name: this answer is not about objects that have names",
		"dot":        `--output="dot": must be one of table, wide, json, yaml, kyaml, name, go-template, go-template-file, template, `,
	} {
		out, err := printed(t, &plain, output)
		NewWithT(t).Expect(err).To(MatchError(HavePrefix(says)), output)
		NewWithT(t).Expect(out).To(BeEmpty())
	}
}

// A value that has colours of its own is as harmless as without colours; the plugin's own come after that, in any column.
func TestTheColoursOfATableAreThePluginsOwn(t *testing.T) {
	table := func() *metav1.Table {
		t := &metav1.Table{Rows: []metav1.TableRow{
			{Cells: []any{"a\x1b[31mb", Cell{Bad, "\x1b]0;differs\x1b[0m"}, "ä"}}, {Cells: []any{"ö", Cell{Good, "as declared"}, Cell{Dim, "x y"}}}, {Cells: []any{"", Cell{"", "z"}, ""}},
		}}
		for _, name := range []string{"Value", "The State", "From"} {
			t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
		}
		return t
	}
	for paint, want := range map[Painter]string{
		false: "VALUE      THE STATE           FROM\na^[[31mb   ^[]0;differs^[[0m   ä\nö          as declared         x y\n           z                   \n",
		true: "VALUE      THE STATE           FROM\na^[[31mb   \x1b[31m^[]0;differs^[[0m\x1b[0m   ä\n" +
			"ö          \x1b[32mas declared\x1b[0m         \x1b[2mx y\x1b[0m\n           z                   \n",
	} {
		var out bytes.Buffer
		NewWithT(t).Expect(printTable(&out, paint, table())).To(Succeed())
		NewWithT(t).Expect(out.String()).To(Equal(want))
	}
	NewWithT(t).Expect(Painter(true).Paint(Bad, "a\x1b[0mb")).To(Equal("\x1b[31ma^[[0mb\x1b[0m"))
	NewWithT(t).Expect(Painter(false).Paint(Bad, "a\x1b[0mb")).To(Equal("a^[[0mb"))
	NewWithT(t).Expect(printTable(&bytes.Buffer{}, true, &metav1.Table{})).To(Succeed())
}

func TestWhetherThereAreColours(t *testing.T) {
	for color, want := range map[string]Painter{"always": true, "never": false, "auto": false} { // no terminal
		NewWithT(t).Expect((&Factory{Color: color}).Painter(&bytes.Buffer{})).To(Equal(want), color)
	}
}
