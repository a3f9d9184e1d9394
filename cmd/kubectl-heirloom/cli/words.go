// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
)

// Count is a number with its noun.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// OneLine returns an error as a part of a sentence. Errors that are joined have a line each.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// widest is how much of a value a table shows, in characters. Annotations can be long.
const widest = 48

// Shorten returns a value as a table shows it.
func Shorten(value string) string {
	value = strings.Join(strings.Fields(value), " ")
	if runes := []rune(value); len(runes) > widest {
		return string(runes[:widest-1]) + "…"
	}
	return value
}
