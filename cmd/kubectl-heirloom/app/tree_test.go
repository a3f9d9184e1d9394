// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestClusterArgument(t *testing.T) {
	for argument, want := range map[string]struct{ name, problem string }{
		"prod":                         {name: "prod"},
		"cluster/prod":                 {name: "prod"},
		"Clusters/prod":                {name: "prod"},
		"cluster.cluster.x-k8s.io/x.y": {name: "x.y"},
		"machine/m":                    {problem: "tree shows Clusters, and \"machine/m\" is not one"},
		"cluster/":                     {problem: "must be cluster/NAME or NAME"},
		"fleet/prod/x":                 {problem: "must be cluster/NAME or NAME"},
		"":                             {problem: "must be cluster/NAME or NAME"},
	} {
		t.Run(argument, func(t *testing.T) {
			g := NewWithT(t)
			name, err := clusterArgument([]string{argument})
			g.Expect(name).To(Equal(want.name))
			if want.problem == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(want.problem)))
			}
		})
	}
	name, err := clusterArgument(nil)
	NewWithT(t).Expect(name, err).To(BeEmpty())
}

func TestTreeRefusesWhatItCannotDoBeforeItReads(t *testing.T) {
	for name, test := range map[string]struct {
		args    []string
		problem string
	}{
		"a format":               {[]string{"-o", "svg"}, `--output="svg": must be one of table, wide, `},
		"one of many namespaces": {[]string{"prod", "-A"}, "a Cluster is in one namespace"},
		"two Clusters":           {[]string{"prod", "edge"}, "accepts at most 1 arg"},
	} {
		t.Run(name, func(t *testing.T) {
			command := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
			command.SetArgs(append([]string{"tree", "--server=https://127.0.0.1:1"}, test.args...))
			NewWithT(t).Expect(command.ExecuteContext(t.Context())).To(MatchError(ContainSubstring(test.problem)))
		})
	}
}
