// SPDX-License-Identifier: Apache-2.0

// Package settings finds the server's configuration. Every answer of the plugin depends on it: on the regexes, the watch filter, the
// management cluster, the provider groups, and on Cluster API's feature gate.
package settings

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Settings are the server's configuration, as far as it is known.
type Settings struct {
	// Config is the server's configuration. If it is not Known, it has the defaults.
	Config *config.Config
	Known  bool
	// Origin says where Config comes from, such as "Deployment heirloom-system/heirloom" or "--values prod.yaml".
	Origin string
	// Deployment is the server's Deployment, and Others are the Deployments of other Heirlooms in this cluster; empty if none was found.
	Deployment types.NamespacedName
	Others     []types.NamespacedName
	// Version is the version of the server, ClusterAPI the version of Cluster API's core manager, if they are known.
	Version, ClusterAPI string
	// Propagation says whether Cluster API propagates taints itself.
	Propagation inherit.TaintPropagation
	// Notes are sentences about unknown settings, and about a plugin that is older or newer than the server.
	Notes []string
}

// Policy returns the settings of the rules.
func (s Settings) Policy() inherit.Policy {
	policy := s.Config.Rules
	policy.ClusterAPITaints = s.Propagation
	return policy
}

// LeavesOut reports whether the server never touches the objects of a namespace, with the reason.
func (s Settings) LeavesOut(namespace string) (inherit.Reason, bool) {
	if !s.Config.Watches(namespace) {
		return inherit.Reason("the server only watches namespace " + strings.Join(s.Config.Namespaces, ", ")), true
	}
	return "", false
}

func (s *Settings) note(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

// Flags say where the settings come from: files with the chart's values, or flags of the server, which take precedence. By default, the
// plugin reads the settings from the running Deployments, of Namespace if it is set.
type Flags struct {
	Values, ServerFlags []string
	Namespace           string
}

// AddFlags adds the flags to the flags of every command.
func (f *Flags) AddFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.Values, "values", nil,
		"File with values of Heirloom's chart, instead of the settings of the running server. Can be repeated; later files take precedence.")
	fs.StringArrayVar(&f.ServerFlags, "server-flags", nil,
		`Flags of the server, such as "--additional-sync-machine-labels=^team$ --watch-filter=blue", instead of the settings of the running `+
			"server; with --values, in addition to the values. Separate flags by spaces.")
	fs.StringVar(&f.Namespace, "heirloom-namespace", "",
		"Namespace in which Heirloom is installed. If unspecified, the plugin looks in all namespaces.")
}

// Given reports whether the user gave the settings, so that the plugin need not read them from the running server.
func (f *Flags) Given() bool { return len(f.Values) > 0 || len(f.ServerFlags) > 0 }

// Offline returns the settings without a call to an API server.
func (f *Flags) Offline() (Settings, error) {
	s, err := f.fromFlags()
	if err != nil {
		return Settings{}, err
	}
	if s.Propagation = s.Config.Rules.ClusterAPITaints; s.Propagation == inherit.PropagationUnknown {
		s.notePropagation("the plugin contacts no server")
	}
	return s, nil
}

// Read returns the settings of the running server, unless the flags give others, and reads Cluster API's settings in the management
// cluster.
func (f *Flags) Read(ctx context.Context, reader client.Reader) (s Settings, err error) {
	if f.Given() {
		s, err = f.fromFlags()
	} else {
		s, err = f.running(ctx, reader)
	}
	if err != nil {
		return Settings{}, err
	}
	return s, s.readClusterAPI(ctx, reader)
}

// fromFlags returns the settings of --values and --server-flags. A mistake is an error here, because the user made it.
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
		if strings.ContainsAny(flags, `'"`) {
			return Settings{}, fmt.Errorf("--server-flags=%q: must not contain quotes: no flag of the server needs spaces", flags)
		}
		arguments = append(arguments, strings.Fields(flags)...)
		origin = append(origin, "--server-flags")
	}
	s := Settings{Known: f.Given(), Origin: strings.Join(slices.Compact(origin), ", ")}
	var fs *pflag.FlagSet
	if s.Config, fs, err = flagsOfServer(arguments); err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unknown flag of the server: %q", fs.Arg(0))
	}
	if err != nil {
		return Settings{}, fmt.Errorf("%s: %w", s.Origin, err)
	}
	return s, nil
}
