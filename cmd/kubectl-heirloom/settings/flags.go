// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Flags say where the settings come from. By default the plugin reads them from the running Deployments.
type Flags struct {
	// Values are files with values of the chart. What a later file sets counts.
	Values []string
	// ServerFlags are flags of the server, such as "--watch-filter=a". They count more than values.
	ServerFlags []string
	// Namespace is the one in which Heirloom is installed, or empty.
	Namespace string
}

// AddFlags adds the flags to those of every command.
func (f *Flags) AddFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.Values, "values", nil,
		"File with values of Heirloom's chart, instead of the settings of the running server. If you repeat it, later files win.")
	fs.StringArrayVar(&f.ServerFlags, "server-flags", nil,
		`Flags of the server, such as "--additional-sync-machine-labels=^team$ --watch-filter=blue", instead of the settings of the running `+
			"server; with --values in addition to those.")
	fs.StringVar(&f.Namespace, "heirloom-namespace", "",
		"Namespace in which Heirloom is installed. If unspecified, the plugin looks in all namespaces.")
}

// Given reports whether you gave the settings, so that no one has to ask the running server.
func (f *Flags) Given() bool { return len(f.Values) > 0 || len(f.ServerFlags) > 0 }

// Offline returns the settings without asking an API server.
func (f *Flags) Offline() (Settings, error) {
	s, err := f.fromFlags()
	if err != nil {
		return Settings{}, err
	}
	s.Propagation = s.Config.Rules.ClusterAPITaints
	if s.Propagation == inherit.PropagationUnknown {
		s.note("Whether Cluster API propagates taints itself is unknown offline: " + sayPropagation)
	}
	return s, nil
}

// Read returns the settings of the running server, unless the flags give others, and asks the management cluster about Cluster API.
func (f *Flags) Read(ctx context.Context, reader client.Reader) (Settings, error) {
	read := f.running
	if f.Given() {
		read = func(context.Context, client.Reader) (Settings, error) { return f.fromFlags() }
	}
	s, err := read(ctx, reader)
	if err != nil {
		return Settings{}, err
	}
	err = s.readClusterAPI(ctx, reader)
	return s, err
}

// fromFlags returns what --values and --server-flags say. Here, a mistake is the user's.
func (f *Flags) fromFlags() (Settings, error) {
	arguments, err := fromValues(f.Values)
	if err != nil {
		return Settings{}, err
	}
	var origin []string
	for _, file := range f.Values {
		origin = append(origin, "--values "+file)
	}
	for _, flags := range f.ServerFlags {
		arguments = append(arguments, strings.Fields(strings.NewReplacer(`'`, "", `"`, "").Replace(flags))...) // no value has a space or a quote
	}
	if len(f.ServerFlags) > 0 {
		origin = append(origin, "--server-flags")
	}
	p := newParser()
	err = p.fs.Parse(arguments)
	if err == nil && p.fs.NArg() > 0 {
		err = fmt.Errorf("%q is no flag of the server", p.fs.Arg(0))
	}
	if err == nil {
		complete, wrong := p.options.Complete()
		if wrong == nil {
			return Settings{Config: complete, Known: f.Given(), Origin: strings.Join(slices.Compact(origin), ", ")}, nil
		}
		err = wrong
	}
	return Settings{}, fmt.Errorf("%s: %w", strings.Join(slices.Compact(origin), ", "), err)
}
