// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/version"
)

func newVersionCommand(f *cli.Factory) *cobra.Command {
	client, print := false, cli.NewPrintFlags().WithoutNames()
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this plugin, of the server and of Cluster API",
		Args:  cli.NoArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			versions := &versions{TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "Version"}, Client: version.String()}
			if err := print.Validate(); err != nil || client {
				return cmp.Or(err, versions.print(f, print))
			}
			f.Hurry()
			_, w, err := world(command.Context(), f)
			if err != nil {
				return err
			}
			versions.Server, versions.ClusterAPI = cmp.Or(w.Settings.Version, "unknown"), cmp.Or(w.Settings.ClusterAPI, "unknown")
			if err := versions.print(f, print); err != nil {
				return err
			}
			for _, note := range w.Settings.Notes {
				_, _ = fmt.Fprintln(f.ErrOut, "Note:", note)
			}
			return nil
		},
	}
	print.AddFlags(command)
	command.Flags().BoolVar(&client, "client", false, "Print only the version of this plugin (no server required).")
	return command
}

// versions is the answer. Without a server, it has only the version of the plugin.
type versions struct {
	metav1.TypeMeta `json:",inline"`

	Client     string `json:"clientVersion"`
	Server     string `json:"serverVersion,omitempty"`
	ClusterAPI string `json:"clusterAPIVersion,omitempty"`
}

func (v *versions) print(f *cli.Factory, print *cli.PrintFlags) error {
	if !print.ForPeople() {
		return print.Print(f.Out, f.Painter(f.Out), v)
	}
	lines := "Client Version: " + v.Client + "\n"
	if v.Server != "" {
		lines += "Server Version: " + v.Server + "\nCluster API Version: " + v.ClusterAPI + "\n"
	}
	_, err := io.WriteString(f.Out, lines)
	return err
}
