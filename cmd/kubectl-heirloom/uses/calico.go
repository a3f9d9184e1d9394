// SPDX-License-Identifier: Apache-2.0

package uses

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// calicoToken matches a token of Calico's selectors
// (https://docs.tigera.io/calico/latest/reference/resources/networkpolicy#selectors).
var calicoToken = regexp.MustCompile(`^\s*(\|\||&&|==|!=|[!(){},]|'[^']*'|"[^"]*"|[\w./-]+)`)

// calicoParser reads a selector token by token. The first error ends all loops, because no token is left after it.
type calicoParser struct {
	tokens []string
	err    error
}

// parseCalico reads a selector of Calico.
func parseCalico(text string) (condition, error) {
	p := &calicoParser{}
	for rest := strings.TrimRight(text, " \t\n"); rest != ""; {
		token := calicoToken.FindStringSubmatch(rest)
		if token == nil {
			return condition{}, fmt.Errorf("%q: unexpected %q", text, rest)
		}
		p.tokens, rest = append(p.tokens, token[1]), rest[len(token[0]):]
	}
	parsed := p.any()
	if p.err == nil && len(p.tokens) > 0 {
		p.fail(p.tokens[0])
	}
	if p.err != nil {
		return condition{}, fmt.Errorf("%q: %w", text, p.err)
	}
	return parsed, nil
}

func (p *calicoParser) fail(token string) condition {
	if p.err == nil {
		p.err = fmt.Errorf("unexpected %q", token)
	}
	p.tokens = nil
	return condition{}
}

// next reads a token.
func (p *calicoParser) next() (token string) {
	if len(p.tokens) > 0 {
		token, p.tokens = p.tokens[0], p.tokens[1:]
	}
	return token
}

// skip reads these tokens if they come next.
func (p *calicoParser) skip(tokens ...string) bool {
	if len(p.tokens) < len(tokens) || !slices.Equal(p.tokens[:len(tokens)], tokens) {
		return false
	}
	p.tokens = p.tokens[len(tokens):]
	return true
}

func (p *calicoParser) expect(token string) {
	if !p.skip(token) {
		p.fail(p.next())
	}
}

func (p *calicoParser) any() condition {
	of := []condition{p.all()}
	for p.skip("||") {
		of = append(of, p.all())
	}
	return or(of...)
}

func (p *calicoParser) all() condition {
	of := []condition{p.one()}
	for p.skip("&&") {
		of = append(of, p.one())
	}
	return and(of...)
}

func (p *calicoParser) one() condition {
	switch {
	case p.skip("!"):
		return not(p.one())
	case p.skip("("):
		inner := p.any()
		p.expect(")")
		return inner
	case p.skip("all", "(", ")"):
		return and()
	case p.skip("global", "(", ")"): // selects no Node by a label
		return condition{}
	case p.skip("has", "("):
		key := p.next()
		p.expect(")")
		return calicoTest(key, func(string) bool { return true })
	}
	return p.comparison(p.next())
}

// comparison reads the part of a comparison after the key. A label that is absent has no value, so only the negations hold.
func (p *calicoParser) comparison(key string) condition {
	switch {
	case p.skip("=="):
		return calicoIn(key, p.value())
	case p.skip("!="):
		return not(calicoIn(key, p.value()))
	case p.skip("in"):
		return calicoIn(key, p.values()...)
	case p.skip("not", "in"):
		return not(calicoIn(key, p.values()...))
	}
	for _, is := range []struct {
		words []string
		test  func(value, part string) bool
	}{{[]string{"contains"}, strings.Contains}, {[]string{"starts", "with"}, strings.HasPrefix}, {[]string{"ends", "with"}, strings.HasSuffix}} {
		if p.skip(is.words...) {
			part := p.value()
			return calicoTest(key, func(value string) bool { return is.test(value, part) }, part)
		}
	}
	return p.fail(key)
}

// values reads a set, such as {'a', 'b'}.
func (p *calicoParser) values() (all []string) {
	p.expect("{")
	for p.err == nil && !p.skip("}") {
		all = append(all, p.value())
		p.skip(",")
	}
	return all
}

func (p *calicoParser) value() string {
	token := p.next()
	if token == "" || token[0] != '\'' && token[0] != '"' {
		p.fail(token)
		return ""
	}
	return token[1 : len(token)-1]
}

func calicoIn(key string, values ...string) condition {
	return calicoTest(key, func(value string) bool { return slices.Contains(values, value) }, values...)
}

// calicoTest is a condition that holds only for a label that is present.
func calicoTest(key string, test func(string) bool, values ...string) condition {
	return condition{key: key, values: values, test: func(set labels.Set) bool { return set.Has(key) && test(set[key]) }}
}
