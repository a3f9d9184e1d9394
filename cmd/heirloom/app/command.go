// SPDX-License-Identifier: Apache-2.0

// Package app wires Heirloom together.
package app

import (
	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/version"
)

// NewCommand returns the command heirloom.
func NewCommand() *cobra.Command {
	options := config.NewOptions()
	command := &cobra.Command{
		Use:   "heirloom",
		Short: "Propagate labels, annotations and taints in Cluster API, in the write that creates or changes an object",
		Long: `Heirloom is a mutating admission webhook server, with a resync loop behind it, for Kubernetes Cluster API.

It injects the labels, annotations and taints that owners declare into every MachineSet, Machine and Node, in the same
API write that creates or changes it, and keeps Always taints there. It fails open: clusters keep working without it.`,
		Args:         cobra.NoArgs,
		Version:      version.String(),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := options.Complete()
			if err != nil {
				return err
			}
			if err := logsv1.ValidateAndApply(c.Logs, nil); err != nil {
				return err
			}
			klog.SetLoggerWithOptions(briefly(klog.Background()), klog.ContextualLogger(true)) // client-go logs through klog
			ctrl.SetLogger(klog.Background())
			return run(cmd.Context(), c)
		},
	}
	command.Flags().SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	options.AddFlags(command.Flags())
	former := newCleanupCommand()
	former.Use, former.Deprecated = "release", "use cleanup"
	command.AddCommand(newCleanupCommand(), former)
	return command
}
