// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestTreeRefusesWhatItCannotDoBeforeItReads(t *testing.T) {
	for name, test := range map[string]struct {
		args    []string
		problem string
	}{
		"a format":               {[]string{"-o", "svg"}, `--output="svg": must be one of table, wide, `},
		"one of many namespaces": {[]string{"prod", "-A"}, `"prod" names an object, but flags choose`},
		"another kind":           {[]string{"machine/m"}, `"machine/m" is not a Cluster`},
	} {
		t.Run(name, func(t *testing.T) {
			command := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
			command.SetArgs(append([]string{"tree", "--server=https://127.0.0.1:1"}, test.args...))
			NewWithT(t).Expect(command.ExecuteContext(t.Context())).To(MatchError(ContainSubstring(test.problem)))
		})
	}
}
