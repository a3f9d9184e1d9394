// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// width is that of the terminals which everything is made to fit.
const width = 100

// report writes down what the demo does, and counts what it has checked.
type report struct {
	steps, passed, failed int
}

// headline begins a step.
func (r *report) headline(title string) {
	r.steps++
	heading := fmt.Sprintf("%d. %s", r.steps, title)
	fmt.Printf("\n%s\n%s\n", heading, strings.Repeat("─", utf8.RuneCountInString(heading)))
}

// say writes a paragraph.
func (r *report) say(format string, args ...any) {
	fmt.Printf("\n%s\n", wrap(fmt.Sprintf(format, args...), "", ""))
}

// command writes a command line as a user types it.
func (r *report) command(args ...string) {
	fmt.Printf("\n%s\n", strings.ReplaceAll(wrap(strings.Join(args, " "), "  $ ", "      "), "\n", " \\\n"))
}

// output writes what a program has printed.
func (r *report) output(text string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			fmt.Println(wrap(line, "  | ", "  |   "))
		}
	}
}

// check writes what was to be observed and, as it was not, the problems.
func (r *report) check(what string, problems ...string) {
	if len(problems) == 0 {
		r.passed++
		fmt.Println(wrap(what, "  ✓ ", "    "))
		return
	}
	r.failed++
	fmt.Println(wrap(what, "  ✗ ", "    "))
	for _, problem := range problems {
		fmt.Println(wrap(problem, "      ", "      "))
	}
}

// progress says what is being done and how long it took.
func progress(what string, do func() error) error {
	fmt.Printf("%s … ", what)
	started := time.Now()
	err := do()
	if err != nil {
		fmt.Println("failed")
		return err
	}
	fmt.Printf("%.1f s\n", time.Since(started).Seconds())
	return nil
}

// verdict sums up. It returns an error unless all that is to be checked was observed.
func (r *report) verdict(ctx context.Context, elapsed time.Duration) error {
	fmt.Printf("\n%d checks passed, %d failed (%.0f s)\n", r.passed, r.failed, elapsed.Seconds())
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case r.failed > 0:
		return fmt.Errorf("%d of %d checks failed", r.failed, r.passed+r.failed)
	default:
		return nil
	}
}

// wrap breaks a text between words.
func wrap(text, first, others string) string {
	var b strings.Builder
	b.WriteString(first)
	column := utf8.RuneCountInString(first)
	for i, word := range strings.Fields(text) {
		length := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+length > width-2: // a command line may need " \"
			b.WriteString("\n" + others)
			column = utf8.RuneCountInString(others)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += length
	}
	return b.String()
}
