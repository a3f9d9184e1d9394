// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"strings"
	"unicode"
)

// split splits a line into words as a shell does, with one exception: a backslash is only special before a space or a quote, so that
// regular expressions stay as they are.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote rune
	inWord, escaped := false, false
	for _, r := range line {
		switch {
		case escaped:
			if r != '\'' && r != '"' && !unicode.IsSpace(r) {
				word.WriteRune('\\')
			}
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			inWord, escaped = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			inWord, quote = true, r
		case !unicode.IsSpace(r):
			inWord = true
			word.WriteRune(r)
		case inWord:
			words = append(words, word.String())
			word.Reset()
			inWord = false
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote is not closed")
	}
	if escaped {
		word.WriteRune('\\')
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
