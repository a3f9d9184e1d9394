// SPDX-License-Identifier: Apache-2.0

// Command schema writes the descriptions of values into a chart's values.schema.json, for editors that show them. They come from the
// lists of the chart's README.md, which helm-docs generates from the comments in values.yaml. make generate runs it. It fails unless the
// schema has exactly the documented values, each on a line of its own, in the order of values.yaml.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: schema CHART")
	}
	readme, err := os.ReadFile(filepath.Join(args[0], "README.md"))
	if err != nil {
		return fmt.Errorf("reading the descriptions: %w", err)
	}
	file := filepath.Join(args[0], "values.schema.json")
	schema, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the schema: %w", err)
	}
	var documented []string
	descriptions := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\* `([A-Za-z.]+)`(?: \\(`.*`\\))?: (.*)$").FindAllStringSubmatch(string(readme), -1) {
		documented = append(documented, row[1])
		descriptions[row[1]] = row[2]
	}
	described, found := describe(string(schema), descriptions)
	found = slices.DeleteFunc(found, func(value string) bool { return value == "uninstall.release" }) // deprecated
	// The schema knows names of other charts, to refuse them in words, and "enabled", for a chart that depends on this chart.
	others := []string{"namespace", "crds", "featureGates", "prometheus", "serviceMonitor", "webhook", "enabled"}
	if expected := slices.Concat(documented, others); !slices.Equal(found, expected) {
		return fmt.Errorf("the values of %s are\n%s\nand the documented values are\n%s", file,
			strings.Join(found, " "), strings.Join(expected, " "))
	}
	if err := os.WriteFile(file, []byte(described), 0o600); err != nil {
		return fmt.Errorf("writing the schema: %w", err)
	}
	return nil
}

// opens matches a line that opens an object or a list; inline matches a description within a line.
var (
	opens  = regexp.MustCompile(`^( *)(?:"([$A-Za-z]+)": )?[{[](.*)`)
	inline = regexp.MustCompile(` "description": "(?:[^"\\]|\\.)*",`)
)

// describe sets the description of each documented value in the text of a schema, where it comes first in its object. It returns the
// values in their order: documented values, and values that are neither documented nor parts of a documented value, nor have such parts.
func describe(schema string, descriptions map[string]string) (described string, values []string) {
	lines := strings.Split(schema, "\n")
	var names []string // of the objects around a line, by its indentation
	for i, line := range lines {
		m := opens.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		indent, name, rest := m[1], m[2], m[3]
		names = append(names[:len(indent)/2], name)
		value := valueAt(names)
		if value == "" || related(value, descriptions) {
			continue
		}
		values = append(values, value)
		text, documented := descriptions[value]
		text = fmt.Sprintf(`"description": %q,`, text)
		switch {
		case !documented:
		case rest != "":
			lines[i] = fmt.Sprintf("%s%q: { %s%s", indent, name, text, inline.ReplaceAllLiteralString(rest, ""))
		case strings.HasPrefix(strings.TrimSpace(lines[i+1]), `"description":`):
			lines[i+1] = indent + "  " + text
		default:
			lines[i] += "\n" + indent + "  " + text
		}
	}
	return strings.Join(lines, "\n"), values
}

// valueAt returns the value that an object describes: below the root, names and "properties" alternate on the way to it.
func valueAt(names []string) string {
	if len(names)%2 == 0 {
		return ""
	}
	var value []string
	for i, name := range names[1:] {
		if i%2 == 1 {
			value = append(value, name)
		} else if name != "properties" {
			return ""
		}
	}
	return strings.Join(value, ".")
}

// related reports whether a value is a part of a documented value, or has documented parts.
func related(value string, descriptions map[string]string) bool {
	for documented := range descriptions {
		if strings.HasPrefix(value, documented+".") || strings.HasPrefix(documented, value+".") {
			return true
		}
	}
	return false
}
