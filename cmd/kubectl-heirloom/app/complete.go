// SPDX-License-Identifier: Apache-2.0

package app

import (
	"github.com/spf13/cobra"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

// complete completes the values of the flags that all commands have.
func complete(root *cobra.Command, f *cli.Factory) {
	values := map[string]cobra.CompletionFunc{
		"color": cobra.FixedCompletions([]string{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp),
	}
	for _, flag := range []string{"namespace", "context", "cluster", "user", "management-cluster"} {
		values[flag] = f.CompleteFlag(flag)
	}
	for flag, values := range values {
		if err := root.RegisterFlagCompletionFunc(flag, values); err != nil {
			panic(err) // there is no such flag: a fault of this list
		}
	}
}
