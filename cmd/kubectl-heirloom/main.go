// SPDX-License-Identifier: Apache-2.0

// Command kubectl-heirloom is a kubectl plugin that explains the inheritance of Cluster API objects and their Nodes.
package main

import (
	"fmt"
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the login plugins that a kubeconfig may name
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/app"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

func main() {
	cli.SilenceLogs()
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	err := app.NewCommand(streams).ExecuteContext(ctrl.SetupSignalHandler())
	if says := cli.Sentence(err); says != "" {
		fmt.Fprintln(os.Stderr, "error:", says)
	}
	os.Exit(cli.ExitCode(err))
}
