// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

// Whether something has failed and whether nobody could be asked are two answers.
func TestCheckCannotAsk(t *testing.T) {
	for _, tc := range []struct{ flag, want string }{
		{"--wait=-1s", "--wait=-1s: must not be negative"},
		{"--output=x", `--output="x"`},
		{"--output=name", `--output="name": must be one of table, wide, json`}, // before anything is asked: checks have no objects
		{"--server=https://127.0.0.1:1", "127.0.0.1:1"},
	} {
		t.Run(tc.flag, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			command := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
			command.SetArgs([]string{"check", "--server=https://127.0.0.1:1", tc.flag})
			err := command.ExecuteContext(t.Context())
			Expect(err).To(MatchError(ContainSubstring(tc.want)))
			Expect(cli.ExitCode(err)).To(Equal(cli.ExitFailed))
		})
	}
}
