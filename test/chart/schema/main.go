// SPDX-License-Identifier: Apache-2.0

// Command schema writes the descriptions of values into a chart's values.schema.json, for editors that show them. They come from the
// tables of the chart's README.md, which helm-docs generates from the comments in values.yaml. make generate runs it.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
	file := filepath.Join(args[0], "values.schema.json")
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the schema: %w", err)
	}
	schema, err := parse(raw)
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	readme, err := os.ReadFile(filepath.Join(args[0], "README.md"))
	if err != nil {
		return fmt.Errorf("reading the descriptions: %w", err)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z.]+)` \\| .* \\| (.*) \\|$").FindAllStringSubmatch(string(readme), -1) {
		if err := describe(schema, row[1], row[2]); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if err := os.WriteFile(file, []byte(schema.String()+"\n"), 0o600); err != nil {
		return fmt.Errorf("writing the schema: %w", err)
	}
	return nil
}

// describe sets the description of a value.
func describe(schema *object, path, description string) error {
	at := schema
	for name := range strings.SplitSeq(path, ".") {
		properties, _ := at.get("properties").(*object)
		if properties == nil {
			return fmt.Errorf("%s is documented, and not in the schema", path)
		}
		if at, _ = properties.get(name).(*object); at == nil {
			return fmt.Errorf("%s is documented, and not in the schema", path)
		}
	}
	at.setFirst("description", description)
	return nil
}
