// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
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

	reset = "\x1b[0m"
)

// Painter colours words, or leaves them as they are. In a table only the last column may be painted: the others are aligned by
// their length.
type Painter bool

// Paint returns text in a style.
func (p Painter) Paint(style Style, text string) string {
	if !p || text == "" {
		return text
	}
	return string(style) + text + reset
}

// Painter returns what --color and NO_COLOR (https://no-color.org) say about an output.
func (f *Factory) Painter(w io.Writer) Painter {
	switch f.Color {
	case "always":
		return true
	case "never":
		return false
	}
	file, isFile := w.(*os.File)
	return Painter(os.Getenv("NO_COLOR") == "" && isFile && term.IsTerminal(int(file.Fd())))
}

func validateColor(color string) error {
	switch color {
	case "auto", "always", "never":
		return nil
	}
	return fmt.Errorf("--color=%q: must be auto, always or never", color)
}
