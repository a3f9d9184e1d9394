// SPDX-License-Identifier: Apache-2.0

// Command kubectl-heirloom is the kubectl plugin: kubectl heirloom.
package main

import (
	"os"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // the ways to log in that a kubeconfig may name
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/app"
)

func main() {
	if err := app.NewCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}
