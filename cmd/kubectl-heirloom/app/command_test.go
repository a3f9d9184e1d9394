// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

// ran returns the standard output and the error of the plugin with these arguments.
func ran(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	streams, _, stdout, _ := genericiooptions.NewTestIOStreams()
	command := NewCommand(streams)
	command.SetArgs(args)
	err = command.ExecuteContext(t.Context())
	return stdout.String(), err
}

// A wrong command line is an error of the plugin, not an answer. The error comes before any request to an API server.
func TestWrongCommandLines(t *testing.T) {
	for line, says := range map[string]string{
		"bogus":                                 `unknown command "bogus" for "kubectl heirloom"`,
		"version x":                             `kubectl heirloom version takes no arguments, but got ["x"]`,
		"version --bogus":                       `unknown flag: --bogus: see "kubectl heirloom version --help"`,
		"version --color=red":                   `--color="red": must be auto, always or never`,
		"options -o json":                       `unknown shorthand flag: 'o' in -o: see "kubectl heirloom options --help"`,
		"explain":                               "specify an object, such as machine/md-0-x7k2p, or a kind, such as machines",
		"explain machine/":                      `"machine/" is not an object: use KIND/NAME`,
		"explain machine/a team --key team":     `"team" is not an object: `,
		"explain node/n --output=wild":          `--output="wild": must be one of `,
		"explain node/n --selector=,":           `--selector=",": `,
		"explain node/n --management-cluster=m": `--management-cluster="m": must be <namespace>/<name>`,
		"tree machine/m":                        `"machine/m" is not a Cluster: use cluster/NAME or NAME`,
		"diff machine/m":                        `"machine/m" is not a Cluster: use cluster/NAME or NAME`,
		"cleanup --namespace=fleet":             "--namespace has no effect on a cleanup of everything: ",
		"cleanup --workload-kubeconfig=x":       "--workload-kubeconfig is not supported: a cleanup of everything",
		"cleanup cluster/prod --stop":           "--stop and --keep-values work only with a cleanup of everything: ",
		"cleanup cluster/prod --keep-values":    "--stop and --keep-values work only with a cleanup of everything: ",
		"cleanup --dry-run=maybe":               "Invalid dry-run value (maybe)",
		"lint":                                  "specify files or directories: as arguments, with -f or with -k",
		"lint -f nowhere":                       `the path "nowhere" does not exist`,
		"mode set prod":                         "specify a Cluster, as cluster/NAME or NAME, and then enforce, observe or --unset",
		"mode set cluster enforce":              "specify a Cluster, as cluster/NAME or NAME, and then enforce, observe or --unset",
		"mode set prod enforce --unset":         "specify a Cluster, as cluster/NAME or NAME, and then enforce, observe or --unset",
		"mode set prod loosely":                 `mode "loosely": must be enforce or observe`,
		"cleanup machine/":                      `"machine/" is not an object`,
		"check --wait=-1s":                      "--wait=-1s: must not be negative",
		"check --output=name":                   `--output="name": must be one of table, wide, json`, // checks have no object names
		"check":                                 "The connection to the server 127.0.0.1:1 was refused",
		"tree -o svg":                           `--output="svg": must be one of table, wide, `,
		"tree prod -A":                          `name "prod" cannot be combined`,
		"report --require cost-center":          `--require="cost-center": must be label=KEY, annotation=KEY or taint=KEY`,
		"report -o name":                        `--output="name": must be one of table, wide, `,
		"diff -f x prod":                        "files cannot be combined with Clusters or --all-namespaces",
		"diff - -A":                             "files cannot be combined with Clusters or --all-namespaces",
		"diff prod -A":                          `name "prod" cannot be combined`,
		"adopt":                                 "specify one Cluster, as cluster/NAME or NAME",
		"adopt a b":                             "specify one Cluster, as cluster/NAME or NAME",
		"adopt machine/m":                       `"machine/m" is not a Cluster: use cluster/NAME or NAME`,
		"adopt a -o name":                       `--output="name": must be one of table, wide, `,
		"diff -f nowhere":                       `the path "nowhere" does not exist`,
		"diff - --force-conflicts":              "--force-conflicts needs --server-side",
		"diff - -o name":                        `--output="name": must be one of`,
		"diff cluster.cluster.x-k8s.io/prod":    "The connection to the server 127.0.0.1:1 was refused", // the command line is valid
	} {
		_, err := ran(t, append(strings.Fields(line), "--server=https://127.0.0.1:1")...)
		NewWithT(t).Expect(cli.ExitCode(err)).To(Equal(cli.ExitFailed), line)
		NewWithT(t).Expect(cli.Sentence(err)).To(HavePrefix(says), line)
	}
}
