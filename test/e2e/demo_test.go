// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the built programs, from the chart to the Node.
package e2e

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// updateDocs is the variable with which the test writes the picture that it would otherwise compare; hack/update-docs.sh sets it.
const updateDocs = "HEIRLOOM_UPDATE_DOCS"

// binary returns the path of a program that `make build` has built.
func binary(t *testing.T, name string) string {
	t.Helper()
	path, err := controlplane.Built(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The demo checks everything that it shows, and README's picture of it shows what it prints.
func TestDemo(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "demo")
	// Where nothing is cached, to compile it takes longer than it runs.
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../demo").CombinedOutput(); err != nil {
		t.Fatalf("the demo does not compile: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--heirloom", binary(t, "heirloom"), "--color", "--width=84").CombinedOutput()
	if err != nil {
		t.Fatalf("the demo failed: %v\n%s", err, out)
	}
	summary := regexp.MustCompile(`(?m)^(\d+) checks passed, 0 failed`).FindSubmatch(out)
	if summary == nil {
		t.Fatalf("the demo has no summary without failures:\n%s", out)
	}
	if passed, err := strconv.Atoi(string(summary[1])); err != nil || passed < 40 {
		t.Fatalf("the demo has checked too little: %s", summary[0])
	}
	expectPicture(ctx, t, excerpt(t, string(out), 3))
}

// excerpt returns what the demo has printed for one of its steps.
func excerpt(t *testing.T, output string, number int) string {
	t.Helper()
	const headline = `(?m)^(\x1b\[1m)?`
	from := regexp.MustCompile(headline + strconv.Itoa(number) + `\. `).FindStringIndex(output)
	to := regexp.MustCompile(headline + strconv.Itoa(number+1) + `\. `).FindStringIndex(output)
	if from == nil || to == nil {
		t.Fatalf("the demo does not show step %d:\n%s", number, output)
	}
	return strings.TrimSpace(output[from[0]:to[0]]) + "\n"
}

// expectPicture compares the text of docs/images/demo.svg with what the demo has printed. With hack/update-docs.sh demo, it first has
// freeze draw the picture.
func expectPicture(ctx context.Context, t *testing.T, printed string) {
	t.Helper()
	root, err := controlplane.RepositoryRoot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "docs", "images", "demo.svg")
	if os.Getenv(updateDocs) != "" {
		freeze := exec.CommandContext(ctx, filepath.Join(os.Getenv("HEIRLOOM_FREEZE"), "freeze"), "--output", file, "--language=ansi",
			"--window", "--padding=20", "--border.radius=8", "--font.family=ui-monospace, SFMono-Regular, Menlo, Consolas, monospace")
		freeze.Stdin = strings.NewReader(printed)
		if out, err := freeze.CombinedOutput(); err != nil {
			t.Fatalf("freeze failed: %v\n%s", err, out)
		}
	}
	want := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(printed, "")
	if shown := textOf(t, file); shown != want {
		t.Fatalf("docs/images/demo.svg shows\n%s\nand the demo prints\n%s\nhack/update-docs.sh demo draws it again", shown, want)
	}
}

// textOf returns the text of a picture: each of its elements "text" is a line.
func textOf(t *testing.T, file string) string {
	t.Helper()
	picture, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = picture.Close() }()
	var text strings.Builder
	inText := false
	for decoder := xml.NewDecoder(picture); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatalf("reading %s: %v", file, err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inText = inText || token.Name.Local == "text"
		case xml.CharData:
			if inText {
				text.Write(token)
			}
		case xml.EndElement:
			if token.Name.Local == "text" {
				inText = false
				text.WriteString("\n")
			}
		}
	}
}
