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

// The styles of a terminal. Colour only repeats the words.
const (
	bold   = "\x1b[1m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	reset  = "\x1b[0m"
)

// width is the maximum number of columns of a line; README's picture has as many.
const width = 84

// report prints the progress of the demo, and counts the checks.
type report struct {
	color                 bool
	steps, passed, failed int
}

// paint returns each line of the text in a style.
func (r *report) paint(style, text string) string {
	if !r.color {
		return text
	}
	return style + strings.ReplaceAll(text, "\n", reset+"\n"+style) + reset
}

// headline starts a step.
func (r *report) headline(title string) {
	r.steps++
	heading := fmt.Sprintf("%d. %s", r.steps, title)
	fmt.Printf("\n%s\n%s\n", r.paint(bold, heading), strings.Repeat("─", utf8.RuneCountInString(heading)))
}

// say prints a paragraph.
func (r *report) say(format string, args ...any) {
	fmt.Printf("\n%s\n", r.wrap(fmt.Sprintf(format, args...), "", ""))
}

// command prints a command line as you would type it.
func (r *report) command(args ...string) {
	line := strings.ReplaceAll(r.wrap(strings.Join(args, " "), "  $ ", "      "), "\n", " \\\n")
	fmt.Printf("\n%s\n", r.paint(bold, line))
}

// output prints the output of a program.
func (r *report) output(text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		text := r.wrap(line, "  | ", "  |   ")
		if strings.HasPrefix(line, "Warning:") {
			text = r.paint(yellow, text)
		}
		fmt.Println(text)
	}
}

// check prints the expectation and, if it does not hold, the problems.
func (r *report) check(what string, problems ...string) {
	if len(problems) == 0 {
		r.passed++
		fmt.Println(r.paint(green, "  ✓") + r.wrap(what, " ", "    "))
		return
	}
	r.failed++
	fmt.Println(r.paint(red, "  ✗") + r.wrap(what, " ", "    "))
	for _, problem := range problems {
		fmt.Println(r.wrap(problem, "      ", "      "))
	}
}

// progress prints the current action, and how long it took.
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

// verdict prints the totals. It returns an error unless every check passed.
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

// wrap breaks lines between words.
func (r *report) wrap(text, first, others string) string {
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
