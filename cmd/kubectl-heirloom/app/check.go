// SPDX-License-Identifier: Apache-2.0

package app

import (
	"github.com/spf13/cobra"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
)

func newCheckCommand(_ *cli.Factory) *cobra.Command {
	return &cobra.Command{Use: "check", Hidden: true}
}
