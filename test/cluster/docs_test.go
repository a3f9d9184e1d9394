// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/cluster"
	"github.com/heirloom-dev/heirloom/test/markdown"
)

// step has the expectations of this test for a block of a page.
type step struct {
	// starts is the beginning of its text.
	starts string
	// skipped is the reason why this test skips the block. All other blocks of the page run.
	skipped string
	// without has the beginnings of the lines that do not run here; a comment has the reason.
	without []string
	// exits is the exit code that the page announces.
	exits int
	// warns is a regular expression for the warning of Heirloom's webhook. API servers ignore a webhook that takes longer than two
	// seconds, so the block runs again until it shows the warning: the loop has then restored the removed entries.
	warns string
	// follows checks the effect that the page describes.
	follows func(r *reader, printed string)
}

// reader plays a reader of the pages, who runs every block as it is written, in order. The exports of a block are visible in the next
// block.
type reader struct {
	*release
	// dir is the reader's copy of the repository: links to all files, except for the files that the reader creates.
	dir string
	// state is the file with all exports so far, change the file with the next change of the editor.
	state, change string
	env           []string
	// names are the reader's names in place of names and placeholders on the pages.
	names map[string]string
}

// The commands of the pages for the first hour have the effects that the pages describe, for a reader who types them one after the other,
// with Cluster API's own programs in Pods: its clusterctl installs them, and the ClusterClass of its Docker provider becomes Machines. Only
// the step from containers to Nodes is simulated.
func TestTheDocumentedCommands(t *testing.T) {
	if shared.Cluster == nil {
		t.Skip(cluster.Missing())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	r := newReader(ctx, t)
	r.startCertManager()
	r.tag("ghcr.io/heirloom-dev/heirloom:dev")
	r.leadToItself()
	t.Cleanup(r.removeClusterAPI)
	t.Cleanup(r.remove)
	for _, page := range pages() {
		r.step(page.file, func() { r.follow(page) })
	}
	r.settle() // the last page ends with an upgrade
}

// The steps match the pages: every block that a step skips or checks exists, and every other block can run.
func TestTheDocumentedCommandsAreKnown(t *testing.T) {
	for _, page := range pages() {
		r := &reader{release: &release{WithT: NewWithT(t), t: t}}
		met := map[string]bool{}
		for _, b := range r.blocks(page.file) {
			known := r.stepOf(page, b)
			met[known.starts] = true
			for _, start := range known.without {
				r.Expect("\n"+b.Text).To(ContainSubstring("\n"+start), "%s:%d", page.file, b.Line)
			}
			if known.skipped == "" {
				r.Expect(b.Language).To(BeElementOf("", "sh", "console", "yaml"), "%s:%d", page.file, b.Line)
			}
		}
		for _, known := range page.steps {
			r.Expect(met).To(HaveKey(known.starts), "no block of %s begins with this text", page.file)
		}
	}
}

// The recipe for an installation on kind is the same on every page, and so are the three steps from observing to writing everywhere.
func TestOneRecipeInstalls(t *testing.T) {
	r, recipes, steps := &reader{release: &release{WithT: NewWithT(t), t: t}}, map[string]string{}, map[string]string{}
	for _, page := range []string{"README.md", gettingStarted, quickStart, "deploy/chart/heirloom/README.md"} {
		for _, b := range r.blocks(page) {
			if strings.HasPrefix(b.Text, "git clone") {
				recipes[page] = b.Text
			}
			if strings.HasPrefix(b.Text, "kubectl label --overwrite --namespace") {
				steps[page] = b.Text
			}
		}
		r.Expect(recipes[page]).To(HavePrefix(recipes["README.md"]), page)
	}
	r.Expect(recipes["README.md"]).To(ContainSubstring("helm install"))
	r.Expect(steps[gettingStarted]).To(And(Equal(steps["README.md"]), ContainSubstring("mode=observe"), ContainSubstring("enrollment=all")))
}

// tag gives the image of `make test-cluster` another name.
func (r *reader) tag(name string) {
	r.t.Helper()
	out, err := exec.CommandContext(r.ctx, "ctr", "--namespace", "k8s.io", "images", "tag", shared.Image, name).CombinedOutput()
	r.Expect(err).NotTo(HaveOccurred(), "%s", out)
}

func newReader(ctx context.Context, t *testing.T) *reader {
	t.Helper()
	own := t.TempDir()
	r := &reader{
		release: &release{WithT: NewWithT(t), t: t, ctx: ctx}, dir: t.TempDir(), names: map[string]string{},
		state: filepath.Join(own, "exported"), change: filepath.Join(own, "change.yaml"),
	}
	root := r.root()
	entries, err := os.ReadDir(root)
	r.Expect(err).NotTo(HaveOccurred())
	for _, entry := range entries {
		r.Expect(os.Symlink(filepath.Join(root, entry.Name()), filepath.Join(r.dir, entry.Name()))).To(Succeed())
	}
	editor := filepath.Join(own, "editor")
	const merge = "#!/usr/bin/env bash\nset -euo pipefail\n" +
		`kubectl patch --local --filename "$1" --type merge --patch-file "$CHANGE" --output yaml >"$1.changed"` + "\n" +
		`mv "$1.changed" "$1"` + "\n"
	r.Expect(os.WriteFile(editor, []byte(merge), 0o700)).To(Succeed())
	// The blocks must not write to the home directory of the user who runs this test.
	r.env = append(os.Environ(), "HOME="+r.publish(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true",
		"KUBECONFIG="+shared.Kubeconfig, "KUBE_EDITOR="+editor, "CHANGE="+r.change, "STATE="+r.state, "CLONE="+r.dir,
		"PATH="+os.ExpandEnv("$HEIRLOOM_HELM:$HEIRLOOM_TOOLS:$HEIRLOOM_CLUSTER_API:$PATH"))
	return r
}

// blocks returns the code blocks of a page.
func (r *reader) blocks(page string) []markdown.Block {
	r.t.Helper()
	content, err := os.ReadFile(filepath.Join(r.root(), page))
	r.Expect(err).NotTo(HaveOccurred())
	blocks := markdown.Parse(content).Blocks
	r.Expect(blocks).NotTo(BeEmpty())
	return blocks
}

// stepOf returns the step for a block, or an empty step.
func (r *reader) stepOf(page page, b markdown.Block) step {
	r.t.Helper()
	found := slices.DeleteFunc(slices.Clone(page.steps), func(s step) bool { return !strings.HasPrefix(b.Commands(), s.starts) })
	r.Expect(len(found)).To(BeNumerically("<", 2), "%s:%d: %s", page.file, b.Line, b.Text)
	return append(found, step{})[0]
}

// follow runs all blocks of a page. A block of YAML is the change for the editor that the block above it opens.
func (r *reader) follow(page page) {
	r.t.Helper()
	blocks := r.blocks(page.file)
	for i, b := range blocks {
		known := r.stepOf(page, b)
		if known.skipped != "" || b.Language == "yaml" {
			continue
		}
		if strings.Contains(b.Text, " edit ") {
			r.Expect(blocks[i+1].Language).To(Equal("yaml"), "%s:%d: no block below shows the change", page.file, b.Line)
			r.Expect(os.WriteFile(r.change, []byte(blocks[i+1].Text), 0o600)).To(Succeed())
		}
		r.do(page.file, known, b)
	}
}

// do runs a block.
func (r *reader) do(page string, known step, b markdown.Block) {
	r.t.Helper()
	var commands string
	for line := range strings.Lines(r.filled(b)) {
		if !slices.ContainsFunc(known.without, func(start string) bool { return strings.HasPrefix(line, start) }) {
			commands += line
		}
	}
	r.t.Logf("%s:%d:\n%s", page, b.Line, commands)
	started := time.Now()
	printed, code := r.run(r.ctx, commands)
	r.t.Logf("%.1f s:\n%s", time.Since(started).Seconds(), printed)
	if known.warns != "" {
		r.Eventually(func() string {
			if ok, _ := MatchRegexp(known.warns).Match(printed); !ok {
				printed, code = r.run(r.ctx, commands)
			}
			return printed
		}).WithTimeout(patience).WithPolling(time.Second).Should(MatchRegexp(known.warns))
	}
	r.Expect(code).To(Equal(known.exits), "%s:%d:\n%s\n%s", page, b.Line, commands, printed)
	if known.follows != nil {
		known.follows(r, printed)
	}
}

// filled returns a block with the reader's names.
func (r *reader) filled(b markdown.Block) string {
	r.t.Helper()
	commands := b.Commands()
	for name, own := range r.names {
		commands = strings.ReplaceAll(commands, name, own)
	}
	r.Expect(commands).NotTo(MatchRegexp(`<[a-z][a-z -]*>`), "line %d has an unknown placeholder", b.Line)
	return commands
}

// run runs a text in bash, which stops at the first command that fails, and returns the output and the exit code.
func (r *reader) run(ctx context.Context, text string) (out string, exitCode int) {
	r.t.Helper()
	script := "set -euo pipefail\n[[ ! -f $STATE ]] || . \"$STATE\"\ncd \"$CLONE\"\n" + text + "\nexport -p >\"$STATE\"\n"
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", script)
	command.Env, command.WaitDelay = r.env, time.Second
	printed, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		r.t.Fatalf("%v:\n%s\n%s", errors.Join(err, ctx.Err()), text, printed)
	}
	return string(printed), command.ProcessState.ExitCode()
}

// anyName removes random parts: the endings of names, and the last writer.
func anyName(text string) string {
	return regexp.MustCompile(`(quick-start-gpu|last written by )[-a-z0-9]+`).ReplaceAllString(text, "$1…")
}
