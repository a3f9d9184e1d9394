// SPDX-License-Identifier: Apache-2.0

package app

import (
	"github.com/spf13/cobra"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

// complete completes the values of the flags that all commands have, and the objects that commands are about. A command that
// completes its arguments itself keeps that.
func complete(root *cobra.Command, f *cli.Factory) {
	objects := map[string]cobra.CompletionFunc{
		"explain": f.CompleteObjects(), "tree": f.CompleteClusters, "release": f.CompleteObjects(),
	}
	for _, command := range root.Commands() {
		if command.ValidArgsFunction == nil && len(command.ValidArgs) == 0 {
			command.ValidArgsFunction = objects[command.Name()]
		}
	}
	for flag, values := range map[string]cobra.CompletionFunc{
		"namespace":          f.CompleteNamespaces,
		"context":            f.CompleteContexts,
		"cluster":            f.CompleteKubeconfigClusters,
		"user":               f.CompleteUsers,
		"management-cluster": f.CompleteClusterKeys,
		"color":              cobra.FixedCompletions([]string{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp),
	} {
		if err := root.RegisterFlagCompletionFunc(flag, values); err != nil {
			panic(err) // there is no such flag: a fault of this list
		}
	}
}
