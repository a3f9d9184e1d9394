// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// updateDocs is the variable with which the test updates the pages instead of comparing them; hack/update-docs.sh sets it.
const updateDocs = "HEIRLOOM_UPDATE_DOCS"

// testKubectlDocs runs the commands of README.md and docs/kubectl.md like a reader, through kubectl, in the directory
// testdata/kubectl: the pages show their output. A command without output on the page is new, and the update adds its output.
func testKubectlDocs(t *testing.T, w *kubectlWorld) {
	for _, page := range []string{"README.md", filepath.Join("docs", "kubectl.md")} {
		t.Run(page, func(t *testing.T) { w.in(t).expectPage(t, filepath.Join(root, page)) })
	}
	// kubectl runs the program kubectl_complete-heirloom, which runs the plugin.
	out, _ := w.shell(t, "kubectl __complete heirloom explain machine/edge 2>/dev/null", 0)
	w.Expect(out).To(ContainSubstring("machine/edge-web-1\n"), "kubectl completes the plugin's arguments")
}

func (w *kubectlWorld) expectPage(t *testing.T, file string) {
	t.Helper()
	shown := readPage(w.read(file))
	w.Expect(shown.commands).NotTo(BeEmpty())
	update := os.Getenv(updateDocs) != ""
	code := 0
	for i, command := range shown.commands {
		var output string
		output, code = w.shell(t, command.line, code)
		asked := i+1 < len(shown.commands) && shown.commands[i+1].line == "echo $?"
		switch {
		case code > 1 && !asked:
			t.Errorf("%s:%d: %q ends with exit code %d and prints\n%s", file, command.number, command.line, code, output)
		case alike(output, command.output):
		case update:
			command.output = steady(output)
		default:
			t.Errorf("%s:%d: %q prints\n%s\nand not\n%s\nhack/update-docs.sh plugin writes what it prints into the page",
				file, command.number, command.line, steady(output), command.output)
		}
	}
	if update && !t.Failed() {
		w.Expect(os.WriteFile(file, []byte(shown.write()), 0o644)).To(Succeed())
	}
}

// shell runs a line like a terminal, after a command with the exit code before, and returns its output.
func (w *kubectlWorld) shell(t *testing.T, line string, before int) (output string, exitCode int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 2*patience)
	defer cancel()
	command := exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf("(exit %d); %s", before, line))
	command.Env = append(os.Environ(), "KUBECONFIG="+w.kubeconfig, "HOME="+w.dir, "PATH="+w.path())
	command.Dir = filepath.Join("testdata", "kubectl")
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		t.Fatalf("%s: %v (%v)\n%s", line, err, ctx.Err(), out)
	}
	return withoutProgress(string(out)), command.ProcessState.ExitCode()
}

// path returns a PATH with kubectl and the plugin that make build has built.
func (w *kubectlWorld) path() string {
	list := filepath.Dir(w.plugin) + string(os.PathListSeparator) + os.Getenv("PATH")
	return os.Getenv("HEIRLOOM_TOOLS") + string(os.PathListSeparator) + list
}
