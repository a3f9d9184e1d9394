// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Flags that do not go together are refused before an API server is asked.
func TestReleaseRefusesFlags(t *testing.T) {
	for _, tc := range []struct {
		args    []string
		problem string
	}{
		{[]string{"--namespace=fleet"}, "--namespace has no effect on a release of everything: "},
		{[]string{"--workload-kubeconfig=x"}, "--workload-kubeconfig leads to one workload cluster: "},
		{[]string{"cluster/prod", "--stop"}, "--stop stops Heirloom for all objects, "},
		{[]string{"cluster/prod", "--keep-values"}, "--keep-values goes only with a release of everything: "},
		{[]string{"machine", "b", "c"}, `"machine b c": release takes one object at a time`},
		{[]string{"machine"}, `"machine": release takes one object at a time`},
		{[]string{"machine/"}, `"machine/" is not an object`},
	} {
		command := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
		command.SetArgs(append([]string{"release", "--server=https://127.0.0.1:1"}, tc.args...))
		NewWithT(t).Expect(command.ExecuteContext(t.Context())).To(MatchError(HavePrefix(tc.problem)))
	}
}
