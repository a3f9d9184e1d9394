// SPDX-License-Identifier: Apache-2.0

// Command bench turns the output of `go test -bench` into a table, and into the charts and tables of a Markdown page.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	input := flag.String("input", "", "output of go test -bench, with lines such as \"cores: 2\" at the top")
	page := flag.String("page", "", "Markdown page in which the parts between markers are replaced; charts are written to its directory")
	atLeast := flag.Int("at-least", 3, "how many results of each benchmark the page needs: of fewer, quartiles say nothing")
	flag.Parse()
	if err := run(*input, *page, *atLeast, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run(input, page string, atLeast int, out io.Writer) error {
	contents, err := loadContents()
	if err != nil {
		return err
	}
	results, err := readFile(input)
	if err != nil {
		return err
	}
	if err := printTable(out, results.rows, contents); err != nil {
		return err
	}
	if page == "" {
		return nil
	}
	return updatePage(page, results, contents, atLeast, out)
}
