// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

// lintRun runs lint as a shell would, without a kubeconfig.
func lintRun(t *testing.T, stdin string, args ...string) (stdout, stderr string, exitCode int) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "missing"))
	var out, errOut bytes.Buffer
	command := NewCommand(genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &out, ErrOut: &errOut})
	command.SetArgs(append([]string{"lint"}, args...))
	err := command.ExecuteContext(t.Context())
	if cli.ExitCode(err) == cli.ExitFailed {
		errOut.WriteString("error: " + err.Error())
	}
	return out.String(), errOut.String(), cli.ExitCode(err)
}

func lintFile(rule string) string {
	return filepath.Join("..", "lint", "testdata", rule+".yaml")
}

func TestLint(t *testing.T) {
	content, err := os.ReadFile(lintFile("HL002"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	broken, empty := filepath.Join(t.TempDir(), "broken.yaml"), filepath.Join(t.TempDir(), "empty.yaml")
	NewWithT(t).Expect(os.WriteFile(broken, []byte("a: [\n"), 0o600)).To(Succeed())
	NewWithT(t).Expect(os.WriteFile(empty, nil, 0o600)).To(Succeed())
	staging := filepath.Join("..", "..", "..", "test", "integration", "testdata", "kubectl", "staging.yaml")
	for name, c := range map[string]struct {
		args        []string
		stdin       string
		out, errOut string
		code        int
		silent      bool
	}{
		"clean":              {args: []string{"-f", lintFile("HL002-not")}, errOut: "0 errors", silent: true},
		"an error":           {args: []string{"-f", lintFile("HL002")}, out: "HL002.yaml:14: error HL002 MachinePool fleet/spot: ", errOut: "1 error,", code: 1},
		"a warning":          {args: []string{"-f", lintFile("HL005")}, out: "warning HL005", code: 1},
		"a note":             {args: []string{"-f", lintFile("HL006")}, out: "note HL006"},
		"nothing fails":      {args: []string{"-f", lintFile("HL002"), "--fail-on=never"}, out: "error HL002"},
		"stdin":              {args: []string{"-f", "-"}, stdin: string(content), out: "<stdin>:14: error HL002", code: 1},
		"as pre-commit does": {args: []string{"-f", lintFile("HL006"), lintFile("HL002"), lintFile("HL005")}, out: "HL005.yaml:17", errOut: "in 3 objects", code: 1},
		"json":               {args: []string{lintFile("HL002"), "-o", "json"}, out: `"kind": "LintReport"`, code: 1},
		"jsonpath":           {args: []string{lintFile("HL002"), "-o", "jsonpath={.findings[0].line}"}, out: "14", code: 1},
		"sarif":              {args: []string{lintFile("HL002"), "-o", "sarif"}, out: `"startLine": 14`, code: 1},
		"table":              {args: []string{lintFile("HL002"), "-o", "table"}, out: "SEVERITY", code: 1},
		"colours":            {args: []string{lintFile("HL002"), "--color=always"}, out: "\x1b[31merror\x1b[0m", code: 1},
		"settings":           {args: []string{lintFile("HL006"), "--server-flags=--additional-sync-machine-labels=^cost-"}, out: "annotation example.com/contact", errOut: "1 note"},
		"the namespace":      {args: []string{staging, "-n", "fleet"}, out: "taint batch:PreferNoSchedule of ClusterClass fleet/small is lost", code: 1},
		"the gate":           {args: []string{lintFile("HL003"), "--server-flags=--cluster-api-taint-propagation=disabled"}, out: "error HL003", code: 1},
		"a newer version":    {args: []string{"-f", "-"}, stdin: "apiVersion: cluster.x-k8s.io/v1beta3\nkind: MachineDeployment\nmetadata: {name: md}\n", out: "<stdin>:1: error HL019 MachineDeployment md: ", code: 1},
		"a mistyped kind":    {args: []string{"-f", "-"}, stdin: "apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDeploymnt\nmetadata: {name: md}\n", out: "<stdin>:2: error HL019 MachineDeploymnt md: ", code: 1},
		"no version":         {args: []string{"-f", "-"}, stdin: "apiVersion: cluster.x-k8s.io\nkind: Cluster\nmetadata: {name: c}\n", out: "error HL019 Cluster c: ", code: 1},
		"another kind":       {args: []string{"-f", "-"}, stdin: "apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineHealthCheck\nmetadata: {name: c}\n", errOut: "0 errors", silent: true},
		"an empty file":      {args: []string{empty}, errOut: "0 objects", silent: true},
		"no file":            {code: 2, errOut: "must specify one of -f and -k", silent: true},
		"half is broken":     {args: []string{lintFile("HL002"), broken}, code: 2, out: "error HL002", errOut: "broken.yaml:1: cannot read"},
		"wrong settings":     {args: []string{lintFile("HL002"), "--server-flags=--nonsense"}, code: 2, errOut: "--server-flags", silent: true},
		"a wrong format":     {args: []string{lintFile("HL002"), "-o", "xml"}, code: 2, errOut: `--output="xml": must be one of table, wide, json, yaml, kyaml, go-template, `, silent: true},
		"the formats":        {args: []string{"--help"}, out: "text, sarif). text (a line for each finding) is the default."},
		"a wrong severity":   {args: []string{lintFile("HL002"), "--fail-on=note"}, code: 2, errOut: `--fail-on="note"`, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			stdout, stderr, code := lintRun(t, c.stdin, c.args...)
			g.Expect(code).To(Equal(c.code), stderr)
			g.Expect(stdout).To(ContainSubstring(c.out))
			g.Expect(stderr).To(ContainSubstring(c.errOut))
			g.Expect(stdout == "").To(Equal(c.silent), stdout)
		})
	}
}

// pre-commit installs every program of the module, and calls this program for manifests. testdata/lint.txtar shows that the entry runs.
func TestPreCommitHook(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join("..", "..", "..", ".pre-commit-hooks.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	var hooks []struct{ Language, Files string }
	g.Expect(yaml.Unmarshal(content, &hooks)).To(Succeed())
	g.Expect(hooks).To(HaveLen(1))
	g.Expect(hooks[0].Language).To(Equal("golang"))
	g.Expect([]string{"clusters/prod.yaml", "clusters/prod.yml"}).To(HaveEach(MatchRegexp(hooks[0].Files)))
	g.Expect("README.md").NotTo(MatchRegexp(hooks[0].Files))
}
