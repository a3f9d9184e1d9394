// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

// execute runs the command with these arguments and returns its output.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	// A process configures its logs once, but tests configure them many times.
	t.Cleanup(func() {
		klog.StopFlushDaemon() // the daemon would read the configuration during the reset
		NewWithT(t).Expect(logsv1.ResetForTest(nil)).To(Succeed())
		klog.StopFlushDaemon()
	})
	var output bytes.Buffer
	command := NewCommand()
	command.SetArgs(args)
	command.SetOut(&output)
	command.SetErr(&output)
	err := command.ExecuteContext(t.Context())
	return output.String(), err
}

func TestCommand(t *testing.T) {
	for _, tc := range []struct {
		name    string
		args    []string
		output  []string
		problem string
	}{
		{name: "--help says what it is and lists the flags", args: []string{"--help"}, output: []string{"mutating admission webhook", "--webhook-port", "--management-cluster", "--logging-format", "--tls-min-version"}},
		{name: "--version says which build it is", args: []string{"--version"}, output: []string{"heirloom version "}},
		{name: "an underscore is as good as a dash", args: []string{"--webhook_port=0"}, problem: "--webhook-port=0"},
		{name: "an unknown flag is an error", args: []string{"--no-such-flag"}, problem: "unknown flag: --no-such-flag"},
		{name: "an argument is an error", args: []string{"start"}, problem: `unknown command "start"`},
		{name: "a flag that cannot be read is an error", args: []string{"--webhook-port=many"}, problem: "--webhook-port"},
		{name: "a flag with a bad value is an error, before anything starts", args: []string{"--webhook-port=0"}, problem: "--webhook-port=0: must be between 1 and 65535"},
		{name: "every bad value is named", args: []string{"--webhook-port=0", "--sync-period=0s"}, problem: "--sync-period=0s: must be positive"},
		{name: "cleanup says what it gives up, and takes the program's flags", args: []string{"cleanup", "--help"}, output: []string{"gives up everything", "--keep-values", "--dry-run", "--stop", "--watch-filter", "--additional-provider-groups", "--workload-webhook-key-secret"}},
		{name: "cleanup checks its flags like the program", args: []string{"cleanup", "--namespace=A_B"}, problem: `--namespace="A_B"`},
		{name: "cleanup takes no flag that means nothing to it", args: []string{"cleanup", "--webhook-port=1"}, problem: "unknown flag: --webhook-port"},
		{name: "cleanup must know where the Lease is", args: []string{"cleanup"}, problem: "--leader-elect-namespace is required"},
		{name: "release is the deprecated name of cleanup", args: []string{"release"}, output: []string{`"release" is deprecated, use cleanup`}, problem: "--leader-elect-namespace is required"},
		{name: "a kubeconfig that is not there is an error", args: []string{"--kubeconfig=/no/such/file"}, problem: "loading the kubeconfig of the management cluster"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			output, err := execute(t, tc.args...)
			for _, want := range tc.output {
				Expect(output).To(ContainSubstring(want))
			}
			if tc.problem == "" {
				Expect(err).NotTo(HaveOccurred())
				return
			}
			Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			Expect(output).To(ContainSubstring("Error: "), "the operator sees the error")
			Expect(output).NotTo(ContainSubstring("Usage:"), "no usage after an error")
		})
	}
}

// Without Cluster API the program ends, and its error says what to do.
func TestWithoutClusterAPI(t *testing.T) {
	Expect := NewWithT(t).Expect
	apiServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := map[string]string{
			"/api": `{"versions":["v1"]}`, "/api/v1": `{"groupVersion":"v1","resources":[{"name":"nodes","kind":"Node"}]}`, "/apis": `{}`,
		}[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	defer apiServer.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.Contexts["c"], config.CurrentContext = &clientcmdapi.Cluster{Server: apiServer.URL}, &clientcmdapi.Context{Cluster: "c"}, "c"
	Expect(clientcmd.WriteToFile(*config, kubeconfig)).To(Succeed())
	output, err := execute(t, "--kubeconfig="+kubeconfig, "--leader-elect=false", "--diagnostics-address=0", "--health-addr=127.0.0.1:0",
		"--webhook-cert-secret=ns/own", "--webhook-cert-dns-names=heirloom.ns.svc", "--webhook-configuration=heirloom")
	Expect(err).To(MatchError(ContainSubstring("install Cluster API v1.11 or later first")))
	Expect(output).To(ContainSubstring("install Cluster API v1.11 or later first"))
}
