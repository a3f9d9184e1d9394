// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Flags say where the settings come from. By default the plugin reads them from the running Deployments.
type Flags struct {
	// Values are files with values of the chart.
	Values []string
	// ServerFlags are flags of the server, such as "--watch-filter=a".
	ServerFlags []string
}

// AddFlags adds the flags to those of every command.
func (f *Flags) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&f.Values, "values", nil, "Files with values of the chart, instead of the settings of the running server.")
	fs.StringArrayVar(&f.ServerFlags, "server-flags", nil,
		`Flags of the server, such as "--additional-sync-machine-labels=^team$", instead of the settings of the running server.`)
}

// Offline returns the settings without asking an API server.
func (f *Flags) Offline() (Settings, error) {
	options := config.NewOptions()
	fs := pflag.NewFlagSet("heirloom", pflag.ContinueOnError)
	options.AddFlags(fs)
	var arguments []string
	for _, flags := range f.ServerFlags {
		arguments = append(arguments, strings.Fields(flags)...)
	}
	if err := fs.Parse(arguments); err != nil {
		return Settings{}, fmt.Errorf("--server-flags: %w", err)
	}
	complete, err := options.Complete()
	if err != nil {
		return Settings{}, fmt.Errorf("--server-flags: %w", err)
	}
	return Settings{
		Config: complete, Known: len(f.ServerFlags) > 0, Origin: "--server-flags", Propagation: inherit.PropagationUnknown,
	}, nil
}

// Read returns the settings of the running server, unless the flags give others.
func (f *Flags) Read(_ context.Context, _ client.Reader) (Settings, error) {
	return f.Offline()
}
