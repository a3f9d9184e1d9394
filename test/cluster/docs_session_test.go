// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// session is the terminal of a reader, in a copy of the repository. The exports of a block are visible in the next block.
type session struct {
	t    *testing.T
	root string
	// dir is the reader's copy: links to all files of the repository, except for the files that the reader creates.
	dir string
	// state is the file with all exports so far, change the file with the next change of the editor.
	state, change string
	env           []string
}

func newSession(ctx context.Context, t *testing.T) *session {
	t.Helper()
	Expect := NewWithT(t).Expect
	root, err := controlplane.RepositoryRoot(ctx)
	Expect(err).NotTo(HaveOccurred())
	own := t.TempDir()
	s := &session{t: t, root: root, dir: t.TempDir(), state: filepath.Join(own, "exported"), change: filepath.Join(own, "change.yaml")}
	entries, err := os.ReadDir(root)
	Expect(err).NotTo(HaveOccurred())
	for _, entry := range entries {
		if entry.Name() != "dist" {
			Expect(os.Symlink(filepath.Join(root, entry.Name()), filepath.Join(s.dir, entry.Name()))).To(Succeed())
		}
	}
	s.linkImages()
	editor := filepath.Join(t.TempDir(), "editor")
	const merge = "#!/usr/bin/env bash\nset -euo pipefail\n" +
		`kubectl patch --local --filename "$1" --type merge --patch-file "$CHANGE" --output yaml >"$1.changed"` + "\n" +
		`mv "$1.changed" "$1"` + "\n"
	Expect(os.WriteFile(editor, []byte(merge), 0o700)).To(Succeed())
	s.env = append(os.Environ(),
		"KUBECONFIG="+shared.Kubeconfig, "KUBE_EDITOR="+editor, "CHANGE="+s.change, "STATE="+s.state, "CLONE="+s.dir,
		"PATH="+strings.Join([]string{os.Getenv("HEIRLOOM_HELM"), os.Getenv("HEIRLOOM_TOOLS"), os.Getenv("HEIRLOOM_CLUSTER_API"), os.Getenv("PATH")}, ":"))
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOENV"} {
		value, err := exec.CommandContext(ctx, "go", "env", name).Output()
		Expect(err).NotTo(HaveOccurred())
		s.env = append(s.env, name+"="+strings.TrimSpace(string(value)))
	}
	// The blocks must not write to the home directory of the user who runs this test.
	s.env = append(s.env, "HOME="+t.TempDir())
	return s
}

// linkImages links the image of this test to the path at which the pages' "VERSION=dev hack/release.sh image" writes it.
func (s *session) linkImages() {
	s.t.Helper()
	Expect := NewWithT(s.t).Expect
	dist := filepath.Join(s.dir, "dist")
	Expect(os.Mkdir(dist, 0o700)).To(Succeed())
	archive := os.Getenv("HEIRLOOM_IMAGE") // …/heirloom-<version>-linux-<architecture>.tar
	prefix, architecture, found := strings.Cut(archive, "-linux-")
	Expect(found).To(BeTrue(), archive)
	Expect(os.Symlink(archive, filepath.Join(dist, "heirloom-dev-linux-"+architecture))).To(Succeed())
	Expect(os.Symlink(prefix+"-oci.tar", filepath.Join(dist, "heirloom-dev-oci.tar"))).To(Succeed())
}

// run runs a text in bash, which stops at the first command that fails, and returns the output and the exit code.
func (s *session) run(ctx context.Context, text string) (out string, exitCode int) {
	s.t.Helper()
	script := "set -euo pipefail\n[[ ! -f $STATE ]] || . \"$STATE\"\ncd \"$CLONE\"\n" + text + "\nexport -p >\"$STATE\"\n"
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", script)
	command.Env, command.WaitDelay = s.env, time.Second
	printed, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		s.t.Fatalf("%v:\n%s\n%s", errors.Join(err, ctx.Err()), text, printed)
	}
	return string(printed), command.ProcessState.ExitCode()
}

// edits sets the change that the editor makes from now on.
func (s *session) edits(change string) {
	s.t.Helper()
	NewWithT(s.t).Expect(os.WriteFile(s.change, []byte(change), 0o600)).To(Succeed())
}
