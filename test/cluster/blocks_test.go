// SPDX-License-Identifier: Apache-2.0

package cluster_test

import "strings"

// block is a block of code of a Markdown page: fenced, or indented by four spaces below an empty line.
type block struct {
	page string
	// language is what a fence says, "" without a fence.
	language string
	line     int
	text     string
}

// readBlocks returns the blocks of a page, in order.
func readBlocks(page, content string) []block {
	var blocks []block
	lines := strings.Split(content, "\n")
	for i := 0; i < len(lines); i++ {
		found := block{page: page, line: i + 1}
		end := i
		switch fence, language, fenced := fenceOf(lines[i]); {
		case fenced:
			for end++; end < len(lines) && strings.TrimSpace(lines[end]) != fence; {
				end++
			}
			found.language, found.text = language, dedent(lines[i+1:min(end, len(lines))])
		case isIndented(lines[i]) && (i == 0 || strings.TrimSpace(lines[i-1]) == ""):
			for end+1 < len(lines) && (isIndented(lines[end+1]) || continues(lines, end+1)) {
				end++
			}
			found.text = dedent(lines[i : end+1])
		default:
			continue
		}
		blocks = append(blocks, found)
		i = end
	}
	return blocks
}

// fenceOf returns the fence that a line opens, which may be indented as part of a list, and its language.
func fenceOf(line string) (fence, language string, fenced bool) {
	trimmed := strings.TrimSpace(line)
	language = strings.TrimLeft(trimmed, "`")
	fence = trimmed[:len(trimmed)-len(language)]
	return fence, language, len(fence) >= 3 && !strings.Contains(language, "`")
}

func isIndented(line string) bool {
	return strings.HasPrefix(line, "    ") && strings.TrimSpace(line) != ""
}

// continues says whether an empty line is inside of an indented block.
func continues(lines []string, at int) bool {
	for ; at < len(lines); at++ {
		if strings.TrimSpace(lines[at]) != "" {
			return isIndented(lines[at])
		}
	}
	return false
}

// dedent removes the indentation that all lines have.
func dedent(lines []string) string {
	common := -1
	for _, line := range lines {
		if text := strings.TrimLeft(line, " "); text != "" && (common < 0 || len(line)-len(text) < common) {
			common = len(line) - len(text)
		}
	}
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(line[min(max(common, 0), len(line)):] + "\n")
	}
	return text.String()
}

// commands is what a reader types of a block: of a terminal's, the lines after its prompt.
func (b block) commands() string {
	if b.language != "console" {
		return b.text
	}
	var typed strings.Builder
	for _, line := range strings.SplitAfter(b.text, "\n") {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			typed.WriteString(command)
		}
	}
	return typed.String()
}
