// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestTreeAndReportRefuseWhatTheyCannotDoBeforeTheyRead(t *testing.T) {
	for name, test := range map[string]struct {
		args    []string
		problem string
	}{
		"a format":               {[]string{"tree", "-o", "svg"}, `--output="svg": must be one of table, wide, `},
		"one of many namespaces": {[]string{"tree", "prod", "-A"}, `"prod" names an object, but flags choose`},
		"another kind":           {[]string{"tree", "machine/m"}, `"machine/m" is not a Cluster`},
		"no key":                 {[]string{"report", "--require", "cost-center"}, `--require="cost-center": must be label=KEY, annotation=KEY or taint=KEY`},
		"names of a report":      {[]string{"report", "-o", "name"}, `--output="name": must be one of table, wide, `},
	} {
		t.Run(name, func(t *testing.T) {
			command := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
			command.SetArgs(append(test.args, "--server=https://127.0.0.1:1"))
			NewWithT(t).Expect(command.ExecuteContext(t.Context())).To(MatchError(ContainSubstring(test.problem)))
		})
	}
}
