// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"
	"strings"
)

// longestOrdinary is how many characters a name of a key, or a label's value, may have.
const longestOrdinary = 63

// ordinary reports whether a label or an annotation is certainly valid, as nearly all are. The library's regular expressions are
// a noticeable part of what the rules cost in a Node's request (BenchmarkWebhookCPU). So the library judges only the others.
func ordinary(what, key, value string) bool {
	domain, name, prefixed := strings.Cut(key, "/")
	if !prefixed {
		domain, name = "", key
	}
	return ordinaryName(name) && (!prefixed || ordinaryDomain(domain)) && (what == annotationKey || value == "" || ordinaryName(value))
}

// ordinaryName reports whether a text consists of letters, digits and, inside, of dashes, dots and underscores.
func ordinaryName(text string) bool {
	for i := range len(text) {
		c, inside := text[i], i > 0 && i < len(text)-1
		fits := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || inside && (c == '-' || c == '.' || c == '_')
		if !fits {
			return false
		}
	}
	return text != "" && len(text) <= longestOrdinary
}

func ordinaryDomain(text string) bool {
	odd := []string{"..", ".-", "-.", "_"}
	return ordinaryName(text) && strings.ToLower(text) == text && !slices.ContainsFunc(odd, func(part string) bool { return strings.Contains(text, part) })
}
