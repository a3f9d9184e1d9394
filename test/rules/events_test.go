// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// TestReasonsAreDocumented holds the constants of reasons and the table of Events in docs/monitoring.md together, and keeps other
// reasons out of the code. It is in a package of its own, because Go repeats the tests of a package that read files in every new checkout.
func TestReasonsAreDocumented(t *testing.T) {
	Expect := NewWithT(t).Expect
	page, err := os.ReadFile("../../docs/monitoring.md")
	Expect(err).NotTo(HaveOccurred())
	_, events, found := strings.Cut(string(page), "\n## Events\n")
	Expect(found).To(BeTrue())
	events, _, _ = strings.Cut(events, "\n## ")
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| (?:Normal|Warning) \\|").FindAllStringSubmatch(events, -1) {
		documented = append(documented, row[1])
	}

	var reasons []string
	files, err := filepath.Glob("../../pkg/controllers/*.go")
	Expect(err).NotTo(HaveOccurred())
	files = append(files, "../../pkg/workload/admission.go")
	for _, file := range slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "_test.go") }) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		Expect(err).NotTo(HaveOccurred())
		ast.Inspect(parsed, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.ValueSpec:
				if name := node.Names[0].Name; strings.HasPrefix(strings.ToLower(name), "reason") && len(node.Values) > 0 && literal(node.Values[0]) != "" {
					reasons = append(reasons, literal(node.Values[0]))
				}
			case *ast.CallExpr:
				if called, ok := node.Fun.(*ast.SelectorExpr); ok && called.Sel.Name == "Eventf" {
					Expect(literal(node.Args[3])).To(BeEmpty(), "a reason in %s is a constant", file)
				}
			}
			return true
		})
	}
	Expect(reasons).NotTo(BeEmpty())
	Expect(documented).To(ConsistOf(reasons))
}

// literal returns the value of a string, and nothing of any other expression.
func literal(expression ast.Expr) string {
	if basic, ok := expression.(*ast.BasicLit); ok && basic.Kind == token.STRING {
		value, _ := strconv.Unquote(basic.Value)
		return value
	}
	return ""
}
