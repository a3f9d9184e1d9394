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
	var s splitter
	for _, r := range line {
		s.read(r)
	}
	if s.quote != 0 {
		return nil, errors.New("a quote is not closed")
	}
	if s.escaped {
		s.word.WriteRune('\\')
	}
	s.end()
	return s.words, nil
}

// splitter reads a line.
type splitter struct {
	words []string
	// word is the one that is being read; inWord says that there is one, perhaps an empty one in quotes.
	word   strings.Builder
	inWord bool
	// quote is the one that is open, and escaped says that a backslash was just read.
	quote   rune
	escaped bool
}

func (s *splitter) read(r rune) {
	isQuote := r == '\'' || r == '"'
	switch {
	case s.escaped:
		if !isQuote && !unicode.IsSpace(r) {
			s.word.WriteRune('\\')
		}
		s.word.WriteRune(r)
		s.escaped = false
	case r == '\\' && s.quote != '\'':
		s.inWord, s.escaped = true, true
	case s.quote != 0 && r == s.quote:
		s.quote = 0
	case s.quote == 0 && isQuote:
		s.inWord, s.quote = true, r
	case s.quote == 0 && unicode.IsSpace(r):
		s.end()
	default:
		s.inWord = true
		s.word.WriteRune(r)
	}
}

// end ends a word.
func (s *splitter) end() {
	if s.inWord {
		s.words = append(s.words, s.word.String())
	}
	s.word.Reset()
	s.inWord = false
}
