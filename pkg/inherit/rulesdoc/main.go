// SPDX-License-Identifier: Apache-2.0

// Command rulesdoc writes docs/rules.md from the rules that stand beside the code. go generate runs it in pkg/inherit.
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

// run writes the page about the Go package in the working directory.
func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: rulesdoc <file to write>, in the directory of the rules")
	}
	page, err := render(".", args[0])
	if err != nil {
		return err
	}
	if err := os.WriteFile(args[0], page, 0o644); err != nil { //nolint:gosec // a page of the documentation is for everybody
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}
