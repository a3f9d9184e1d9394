// SPDX-License-Identifier: Apache-2.0

// Command rulesdoc writes docs/rules.md from the table of rules. go generate runs it.
package main

import (
	"errors"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "rulesdoc:", err)
		os.Exit(1)
	}
}

// run writes the page about the rules, with links to the code.
func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: rulesdoc <directory of the rules' code> <file to write>")
	}
	page, err := render(args[0], args[1])
	if err != nil {
		return err
	}
	if err := os.WriteFile(args[1], page, 0o644); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}
