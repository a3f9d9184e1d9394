// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/cluster"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/markdown"
)

// walk plays a reader of the page, who runs every block as it is written, in order.
type walk struct {
	*release
	*session
	page  string
	steps []step
}

// step has the expectations of this test for a block.
type step struct {
	// starts is the beginning of its text.
	starts string
	// passed is the reason why this test skips the block. All other blocks of the page run.
	passed string
	// without has the beginnings of the lines that do not run here; a comment has the reason.
	without []string
	// exits is the exit code that the page announces.
	exits int
	// warns is a regular expression for the warning of Heirloom's webhook. API servers ignore a webhook that takes longer than two
	// seconds, so the block runs again until it shows the warning: the loop has then restored the removed entries.
	warns string
	// follows checks the effect that the page describes.
	follows func(w *walk, printed string)
}

// The commands of the page for the first hour have the effects that it describes, for a reader who types them one after the other: on a
// real Node, with cert-manager's controllers, and with the image in a registry.
func TestTheDocumentedCommands(t *testing.T) {
	if shared.Cluster == nil {
		t.Skip(cluster.Missing())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	r := &release{WithT: NewWithT(t), t: t, ctx: ctx}
	w := &walk{release: r, session: newSession(ctx, t), page: gettingStarted, steps: documented()}
	w.env = append(w.env, "SSL_CERT_FILE="+serveRegistry(t, w.root))
	w.startCertManager()
	w.createFleet()
	t.Cleanup(r.remove)
	started := time.Now()
	w.follow()
	r.settle() // the page ends with an upgrade
	t.Logf("all commands: %.1f s", time.Since(started).Seconds())
}

// These tests match the pages: they know every placeholder in a block, and every block that they skip or check exists.
func TestTheDocumentedCommandsAreKnown(t *testing.T) {
	for page, steps := range map[string][]step{gettingStarted: documented(), quickStart: quickStarted()} {
		t.Run(page, func(t *testing.T) { knows(t, page, steps) })
	}
}

func knows(t *testing.T, page string, steps []step) {
	t.Helper()
	root, err := controlplane.RepositoryRoot(t.Context())
	w := &walk{release: &release{WithT: NewWithT(t), t: t}, session: &session{t: t, root: root}, page: page, steps: steps}
	w.Expect(err).NotTo(HaveOccurred())
	met := map[string]bool{}
	for _, b := range w.blocks() {
		known := w.stepOf(b)
		met[known.starts] = true
		for _, start := range known.without {
			w.Expect("\n"+b.Text).To(ContainSubstring("\n"+start), "%s:%d", w.page, b.Line)
		}
		if known.passed == "" {
			w.Expect(b.Language).To(BeElementOf("", "sh", "console", "yaml"), "%s:%d", w.page, b.Line)
			w.filled(b)
		}
	}
	for _, known := range w.steps {
		w.Expect(met).To(HaveKey(known.starts), "no block of the page begins with this text")
	}
}

// follow runs all blocks of the page.
func (w *walk) follow() {
	w.release.t.Helper()
	blocks := w.blocks()
	for i, b := range blocks {
		var change string
		if i+1 < len(blocks) && isChange(blocks[i+1]) {
			change = blocks[i+1].Text
		}
		w.do(b, change)
	}
}

// blocks returns the code blocks of the page.
func (w *walk) blocks() []markdown.Block {
	w.release.t.Helper()
	content, err := os.ReadFile(filepath.Join(w.root, w.page))
	w.Expect(err).NotTo(HaveOccurred())
	blocks := markdown.Parse(content).Blocks
	w.Expect(blocks).NotTo(BeEmpty())
	return blocks
}

// do runs a block, with the change in the block below it.
func (w *walk) do(b markdown.Block, change string) {
	w.release.t.Helper()
	known := w.stepOf(b)
	if known.passed != "" {
		return
	}
	commands := known.kept(w.filled(b))
	switch {
	case isChange(b):
		w.Expect(w.change).NotTo(BeEmpty())
		return // the block above has made it
	case strings.Contains(commands, " edit "):
		w.Expect(change).NotTo(BeEmpty(), "%s:%d: no block below shows the change", w.page, b.Line)
		w.edits(change)
	default:
		w.Expect(b.Language).To(BeElementOf("", "sh", "console"), "%s:%d", w.page, b.Line)
	}
	w.release.t.Logf("%s:%d:\n%s", w.page, b.Line, commands)
	started := time.Now()
	printed, code := w.run(w.ctx, commands)
	w.release.t.Logf("%.1f s:\n%s", time.Since(started).Seconds(), printed)
	if known.warns != "" {
		w.Eventually(func() string {
			if ok, _ := MatchRegexp(known.warns).Match(printed); !ok {
				printed, code = w.run(w.ctx, commands)
			}
			return printed
		}).WithTimeout(patience).WithPolling(time.Second).Should(MatchRegexp(known.warns))
	}
	w.Expect(code).To(Equal(known.exits), "%s:%d:\n%s\n%s", w.page, b.Line, commands, printed)
	if known.follows != nil {
		known.follows(w, printed)
	}
}

// kept returns the lines of a block that run.
func (s step) kept(commands string) string {
	var kept strings.Builder
	for line := range strings.Lines(commands) {
		if !slices.ContainsFunc(s.without, func(start string) bool { return strings.HasPrefix(line, start) }) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// isChange reports whether a block is a part of an object, for the editor that the block above it opens.
func isChange(b markdown.Block) bool {
	return b.Language == "yaml"
}

// stepOf returns the step for a block, or an empty step.
func (w *walk) stepOf(b markdown.Block) step {
	w.release.t.Helper()
	var found []step
	for _, step := range w.steps {
		if strings.HasPrefix(b.Commands(), step.starts) {
			found = append(found, step)
		}
	}
	w.Expect(len(found)).To(BeNumerically("<", 2), "%s:%d: %s", w.page, b.Line, b.Text)
	if len(found) == 0 {
		return step{}
	}
	return found[0]
}

// filled returns a block with the reader's names in place of the placeholders.
func (w *walk) filled(b markdown.Block) string {
	w.release.t.Helper()
	names := map[string]string{
		"<namespace>": fleet, "<cluster>": fleetCluster, "<machine>": fleetNode, "<node>": fleetNode,
	}
	return regexp.MustCompile(`<[a-z][a-z -]*>`).ReplaceAllStringFunc(b.Commands(), func(placeholder string) string {
		w.Expect(names).To(HaveKey(placeholder), "%s:%d", w.page, b.Line)
		return names[placeholder]
	})
}
