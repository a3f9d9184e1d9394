// SPDX-License-Identifier: Apache-2.0

// Command heirloom is the admission webhook server and resync loop.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/heirloom-dev/heirloom/cmd/heirloom/app"
)

func main() {
	if err := app.NewCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}
