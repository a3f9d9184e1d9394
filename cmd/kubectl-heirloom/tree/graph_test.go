// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"testing"

	. "github.com/onsi/gomega"
)

func TestGraphsSurviveAwkwardText(t *testing.T) {
	awkward := &Item{Kind: "Cluster", Name: "a\"];\nb", State: Unknown, Error: "`x` <b>&amp; \\n #quot; %% é", Enters: []Entry{
		{Kind: "annotation", Key: "note", Value: "\"q\" \\ {x} | ;--> [y]\x1b[31m"},
	}}
	forest := New(View{})
	forest.Trees = append(forest.Trees, awkward)
	for format, want := range map[string]string{
		Mermaid: "flowchart TD\n" +
			"  n0[\"Cluster/a#34;#93;#59; b<br/>" +
			"+annotation note=#34;q#34; #92; #123;x#125; #124; #59;--#62; #91;y#93; #91;31m<br/>" +
			"? #96;x#96; #60;b#62;#38;amp#59; #92;n #35;quot#59; #37;#37; é\"]:::unknown\n" +
			"  classDef drifted,unknown stroke:#cf222e,stroke-width:3px\n" +
			"  classDef leftAlone,stranger stroke-dasharray:4 4\n",
		Dot: "digraph heirloom {\n  node [shape=box, fontname=\"monospace\"];\n" +
			`  n0 [label="Cluster/a\"]; b\l` +
			`+annotation note=\"q\" \\ {x} | ;--> [y] [31m\l` +
			"? `x` <b>&amp;amp; \\\\n #quot; %% é\\l\"" +
			", color=\"#cf222e\", penwidth=3];\n}\n",
	} {
		t.Run(format, func(t *testing.T) {
			g := NewWithT(t)
			var out bytes.Buffer
			g.Expect(forest.Draw(&out, format)).To(Succeed())
			g.Expect(out.String()).To(Equal(want))
		})
	}
}
