// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// paintedAnswer has a value that looks like a colour.
type paintedAnswer struct {
	metav1.TypeMeta `json:",inline"`
	Value           string  `json:"value"`
	Painter         Painter `json:"-"`
}

func (a *paintedAnswer) Table(bool) *metav1.Table {
	return &metav1.Table{
		ColumnDefinitions: []metav1.TableColumnDefinition{{Name: "Value", Type: "string"}, {Name: "State", Type: "string"}},
		Rows:              []metav1.TableRow{{Cells: []any{a.Value, a.Painter.Paint(Good, "ok")}}},
	}
}

func (a *paintedAnswer) Colours() Painter { return a.Painter }

func TestTheColoursOfATableAreThePaintersOwn(t *testing.T) {
	for painter, want := range map[Painter]string{
		true:  "VALUE         STATE\na^[]0;hello   \x1b[32mok\x1b[0m\n",
		false: "VALUE         STATE\na^[]0;hello   ok\n",
	} {
		g := NewWithT(t)
		var out bytes.Buffer
		g.Expect(NewPrintFlags().Print(&out, &paintedAnswer{Value: "a\x1b]0;hello", Painter: painter})).To(Succeed())
		g.Expect(out.String()).To(Equal(want))
	}
	g := NewWithT(t)
	var out bytes.Buffer
	g.Expect(NewPrintFlags().Print(&out, &paintedAnswer{Value: "^[[31mred"})).To(Succeed())
	g.Expect(out.String()).To(ContainSubstring("^[[31mred"), "what only looks like a colour stays as it is")
}

func TestFormatsThatACommandPrintsItself(t *testing.T) {
	g := NewWithT(t)
	flags := NewPrintFlags("mermaid")
	command := &cobra.Command{}
	flags.AddFlags(command)
	g.Expect(command.Flags().Lookup("output").Usage).To(And(ContainSubstring("table, wide, "), ContainSubstring(", mermaid)")))
	g.Expect(command.Flags().Set("output", "mermaid")).To(Succeed())
	g.Expect(flags.Validate()).To(Succeed())
	g.Expect(flags.ForPeople()).To(BeFalse())
	g.Expect(flags.Format()).To(Equal("mermaid"))
	g.Expect(command.Flags().Set("output", "dot")).To(Succeed())
	g.Expect(flags.Validate()).To(MatchError(`--output="dot": must be one of table, wide, ` + "json, yaml, kyaml, name, go-template, go-template-file, template, " +
		"templatefile, jsonpath, jsonpath-as-json, jsonpath-file, mermaid"))
}
