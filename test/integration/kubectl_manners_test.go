// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// testKubectlManners is about what all commands have in common: what they say when they cannot answer, and completion.
func testKubectlManners(t *testing.T, w *kubectlWorld) {
	t.Run("errors", func(t *testing.T) { testKubectlErrors(t, w.in(t)) })
	t.Run("formats", func(t *testing.T) { testKubectlFormats(t, w.in(t)) })
	t.Run("completion", func(t *testing.T) { testKubectlCompletion(t, w.in(t)) })
}

// Whatever goes wrong: one sentence on standard error, nothing on standard output, and exit code 2.
func testKubectlErrors(t *testing.T, w *kubectlWorld) {
	nobody := w.kubeconfigOf(t, "nobody")
	port, err := controlplane.FreePort()
	w.Expect(err).NotTo(HaveOccurred())
	closed := fmt.Sprint("https://127.0.0.1:", port)
	for name, tc := range map[string]struct {
		run  pluginRun
		says string
	}{
		"no such kind":       {pluginRun{args: []string{"explain", "foo/x"}}, `"foo`},
		"no such object":     {pluginRun{args: []string{"explain", "machine/x"}}, `Machine "x" not found in namespace "fleet" (use -n)`},
		"another namespace":  {pluginRun{args: []string{"explain", "machine/prod-gpu-1", "-n", "elsewhere"}}, "elsewhere"},
		"no server":          {pluginRun{args: []string{"explain", "machine/x", "--server=" + closed}}, "was refused - did you specify the right host or port?"},
		"no right":           {pluginRun{args: []string{"explain", "machine/prod-gpu-1"}, kubeconfig: nobody}, `User "nobody" cannot`},
		"no such context":    {pluginRun{args: []string{"explain", "machine/x", "--context=nope"}}, `context "nope" does not exist`},
		"no such flag":       {pluginRun{args: []string{"explain", "machine/x", "--bogus"}}, `see "kubectl heirloom explain --help"`},
		"no such command":    {pluginRun{args: []string{"bogus"}}, `unknown command "bogus"`},
		"no argument":        {pluginRun{args: []string{"explain"}}, ""},
		"no such colour":     {pluginRun{args: []string{"explain", "machine/x", "--color=red"}}, "must be auto, always or never"},
		"no such kubeconfig": {pluginRun{args: []string{"explain", "machine/x", "--kubeconfig=/none"}}, "/none"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out, said, code := w.run(t, tc.run)
			t.Log(said)
			g.Expect(code).To(Equal(2), said)
			g.Expect(out).To(BeEmpty())
			g.Expect(said).To(And(MatchRegexp(`^error: [^\n]+\n$`), ContainSubstring(tc.says)))
			g.Expect(said).NotTo(Or(ContainSubstring("kubectl-heirloom get"), ContainSubstring("memcache"), ContainSubstring("arg(s)")))
		})
	}
}

func testKubectlFormats(t *testing.T, w *kubectlWorld) {
	for output, want := range map[string]string{
		"name":                    "machine.cluster.x-k8s.io/edge-web-1\n",
		"jsonpath={.object}":      "Machine fleet/edge-web-1",
		"go-template={{.object}}": "Machine fleet/edge-web-1",
	} {
		out, said, _ := w.kubectl(t, "explain", "machine/edge-web-1", "-o", output)
		w.Expect(out).To(Equal(want), said)
	}
}

func testKubectlCompletion(t *testing.T, w *kubectlWorld) {
	for line, want := range map[string]string{
		"explain machine/prod-gpu-":                       "machine/prod-gpu-1\nmachine/prod-gpu-2\nmachine/prod-gpu-3\n:4\n",
		"report pr":                                       "prod\n:4\n",
		"explain machine edge-web":                        "edge-web-1\n:4\n",
		"explain node/prod-cp":                            "node/prod-cp-1\n:4\n",
		"explain kubeadmcontrol":                          "kubeadmcontrolplane/\n:6\n",
		"explain kubeadmcontrolplane/":                    "kubeadmcontrolplane/prod-cp\n:4\n",
		"explain machine/x -n fle":                        "fleet\n:4\n",
		"explain machine/x --management-cluster fleet/pr": "fleet/prod\n:4\n",
		"explain machine/x --color a":                     "auto\nalways\nnever\n:4\n",
		"explain machine/x --context the":                 "the-only-one\n:4\n",
		"--server=https://127.0.0.1:1 explain machine/":   ":4\n",
	} {
		t.Run(line, func(t *testing.T) {
			// As kubectl asks: it runs the program kubectl_complete-heirloom, which runs the plugin.
			out, code := w.shell(t, "kubectl_complete-heirloom "+line+" 2>/dev/null", 0)
			NewWithT(t).Expect(code).To(BeZero())
			NewWithT(t).Expect(out).To(Equal(want))
		})
	}
	out, _ := w.shell(t, "kubectl __complete heirloom explain machine/edge 2>/dev/null", 0)
	w.Expect(out).To(ContainSubstring("machine/edge-web-1\n"), "kubectl finds it")
}
