// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/store"
)

// world connects to the management cluster, and returns the connection and the world that comparisons read.
func world(ctx context.Context, f *cli.Factory) (m *cli.Management, w compare.World, err error) {
	if m, err = f.Management(); err != nil {
		return m, w, err
	}
	w = compare.World{Store: store.New(m, m.Schemas.ControlPlane), Now: time.Now()}
	w.Nodes = func(ctx context.Context, cluster types.NamespacedName) (client.Reader, error) {
		return f.Workload(ctx, m, cluster)
	}
	w.Settings, err = f.ReadSettings(ctx, m)
	return m, w, err
}

// clusters returns the named Clusters or, without names, all Clusters of the namespace or of all namespaces.
func clusters(ctx context.Context, f *cli.Factory, w *compare.World, named []cli.Argument, allNamespaces bool) (found []types.NamespacedName, err error) {
	namespace, err := f.Namespace()
	for _, cluster := range named {
		found = append(found, types.NamespacedName{Namespace: namespace, Name: cluster.Name})
	}
	if err != nil || len(named) > 0 {
		return found, err
	}
	if allNamespaces {
		namespace = ""
	}
	defer f.Progress("Reading all objects of Cluster API")()
	return w.Clusters(ctx, namespace)
}

// fleetOptions are the options of commands about Clusters with all objects below them. keys sets the world.
type fleetOptions struct {
	*cli.Factory
	print         *cli.PrintFlags
	allNamespaces bool
	watch         bool
	management    *cli.Management
	world         compare.World
}

func (o *fleetOptions) addFlags(command *cobra.Command) {
	command.ValidArgsFunction = o.Complete(cli.Takes{Clusters: true})
	o.print.AddFlags(command)
	command.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Show the Clusters of all namespaces.")
	command.Flags().BoolVarP(&o.watch, "watch", "w", false, "Print the answer, and print it again whenever it has changed.")
}

// between is the time between two readings with --watch.
const between = 5 * time.Second

// errOver ends a watch: nothing more will change.
var errOver = errors.New("over")

// run runs a command once or, with --watch, until the context ends, or until the command returns errOver. It then prints only answers and
// errors that differ from the last. If there is no first answer, its error ends the command.
func (o *fleetOptions) run(ctx context.Context, once func(context.Context) error) error {
	if !o.watch {
		return once(ctx)
	}
	w := watched{IOStreams: o.IOStreams}
	if o.Painter(o.Out) {
		o.Color = "always" // the terminal is behind a buffer now
	}
	for first := true; ; first = false {
		var out bytes.Buffer
		o.Out = &out
		found := once(ctx)
		problem := cli.Sentence(found)
		switch over := errors.Is(found, errOver); {
		case ctx.Err() != nil:
			return nil
		case over:
			return w.say(out.String(), "")
		case first && out.Len() == 0 && problem != "":
			return found
		}
		if err := w.say(out.String(), problem); err != nil {
			return err
		}
		o.ErrOut = io.Discard // progress and warnings are no news
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(between):
		}
	}
}

// watched prints answers and problems that differ from the last.
type watched struct {
	genericiooptions.IOStreams
	answer, problem string
}

func (w *watched) say(answer, problem string) (err error) {
	if answer != w.answer {
		_, err = io.WriteString(w.Out, answer)
	}
	if problem != "" && problem != w.problem {
		_, _ = fmt.Fprintln(w.ErrOut, "error:", problem)
	}
	w.answer, w.problem = answer, problem
	return err //nolint:wrapcheck // the reader is gone
}

// keys returns the Clusters that the arguments name, or all Clusters of the namespace.
func (o *fleetOptions) keys(ctx context.Context, args []string) (keys []types.NamespacedName, err error) {
	if err = o.print.Validate(); err != nil {
		return nil, err
	}
	named, err := cli.ParseArguments(args, cli.Takes{Clusters: true, Choosing: o.allNamespaces})
	if err != nil {
		return nil, err
	}
	if o.management, o.world, err = world(ctx, o.Factory); err != nil {
		return nil, err
	}
	keys, err = clusters(ctx, o.Factory, &o.world, named.Objects, o.allNamespaces)
	if err == nil && len(keys) == 0 {
		err = errors.New("no Clusters found (use -n for another namespace, or -A for all namespaces)")
	}
	return keys, err
}

// trees compares the Clusters that the arguments name, or all Clusters, with all objects below them. look, which may be nil, looks at a
// Cluster's API server before its Nodes are read. failed says how many of several Clusters could not be read; for a single Cluster, err
// does.
func (o *fleetOptions) trees(
	ctx context.Context, args []string, look func(context.Context, types.NamespacedName, client.Reader),
) (trees []*compare.Tree, failed, err error) {
	keys, err := o.keys(ctx, args)
	if err != nil {
		return nil, nil, err
	}
	if nodes := o.world.Nodes; look != nil {
		o.world.Nodes = func(ctx context.Context, cluster types.NamespacedName) (client.Reader, error) {
			server, err := nodes(ctx, cluster)
			if err == nil {
				look(ctx, cluster, server)
			}
			return server, err
		}
	}
	defer o.Progress("Reading %s and their Nodes", cli.Count(len(keys), "Cluster"))()
	trees = o.world.Trees(ctx, keys)
	unread := slices.DeleteFunc(slices.Clone(trees), func(t *compare.Tree) bool { return t.Err == nil })
	switch {
	case len(unread) == 1 && len(trees) == 1:
		return nil, nil, trees[0].Err
	case len(unread) > 0:
		failed = fmt.Errorf("%s could not be read", cli.Count(len(unread), "Cluster"))
	}
	return trees, failed, ctx.Err()
}

// show prints an answer and, for people, sentences and notes about it.
func (o *fleetOptions) show(answer cli.Result, sentences ...string) error {
	err := o.print.Print(o.Out, o.Painter(o.Out), answer)
	for _, note := range o.world.Settings.Notes {
		sentences = append(sentences, "Note: "+note)
	}
	for _, sentence := range sentences {
		if err == nil && o.print.ForPeople() {
			_, err = fmt.Fprintln(o.Out, cli.Escape(sentence))
		}
	}
	return err
}
