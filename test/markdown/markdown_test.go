// SPDX-License-Identifier: Apache-2.0

package markdown

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestParse(t *testing.T) {
	Expect := NewWithT(t).Expect
	page := Parse([]byte("# Title\n\n    one \\\n      --flag\n\n    two\n\ntext\n    no block, as no empty line is above\n\n" +
		"```console\n$ three\nits output\n$ four\n```\n\n* item\n\n      five\n\n  ```yaml\n  a:\n    b: c\n  ```\n\n" +
		"## Table `x`\n\n| A | B |\n|---|---|\n| `a \\| b` | [c](d) |\n"))
	var texts []string
	for _, b := range page.Blocks {
		texts = append(texts, b.Language+":"+b.Commands())
		Expect(b.Section).To(Equal("Title"))
	}
	Expect(texts).To(Equal([]string{":one \\\n  --flag\n\ntwo\n", "console:three\nfour\n", ":five\n", "yaml:a:\n  b: c\n"}))
	Expect([]int{page.Blocks[0].Line, page.Blocks[1].Line}).To(Equal([]int{3, 12}))
	Expect(page.Rows).To(Equal([]Row{{"Table `x`", []string{"A", "B"}}, {"Table `x`", []string{"`a | b`", "[c](d)"}}}))
}
