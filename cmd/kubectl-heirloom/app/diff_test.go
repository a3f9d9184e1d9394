// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

func TestDiffRefusesFlagsBeforeAnythingIsRead(t *testing.T) {
	const choose = "choose one: files (-f, -k or -), names of Clusters, or --all"
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"nothing":               {nil, choose},
		"files and a Cluster":   {[]string{"-f", "x", "prod"}, choose},
		"files and all":         {[]string{"-", "--all"}, choose},
		"a Cluster and all":     {[]string{"prod", "--all"}, choose},
		"a Cluster and -A":      {[]string{"prod", "-A"}, choose},
		"no such file":          {[]string{"-f", "nowhere"}, `the path "nowhere" does not exist`},
		"force without":         {[]string{"-", "--force-conflicts"}, "--force-conflicts needs --server-side"},
		"another kind":          {[]string{"machine/m"}, `"machine/m" is not a Cluster: write cluster/NAME or NAME, and choose its namespace with -n`},
		"no such output format": {[]string{"-", "-o", "xml"}, `--output="xml": must be one of`},
		"names":                 {[]string{"-", "-o", "name"}, `--output="name": must be one of`},
		"as kubectl -o name":    {[]string{"cluster.cluster.x-k8s.io/prod"}, `Get "https://127.0.0.1:1/`}, // it connects
	} {
		t.Run(name, func(t *testing.T) {
			command := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
			command.SetArgs(append([]string{"diff", "--server=https://127.0.0.1:1"}, test.args...))
			command.SetOut(&bytes.Buffer{})
			command.SetErr(&bytes.Buffer{})
			err := command.ExecuteContext(t.Context())
			NewWithT(t).Expect(err).To(MatchError(HavePrefix(test.want)))
			NewWithT(t).Expect(cli.ExitCode(err)).To(Equal(cli.ExitFailed))
		})
	}
}
