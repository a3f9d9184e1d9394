// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// coreFlags are those flags of Cluster API's core manager that say the same as Heirloom's.
type coreFlags struct {
	labels, annotations []string
	watchFilter         string
}

func clusterAPI(ctx context.Context, w *world) Result {
	known, err := w.settings()
	if err != nil {
		return unknown("The server's settings could not be read: %v", err)
	}
	managers, err := settings.CoreManagers(ctx, w.Client)
	if err != nil {
		return unknown("Cluster API's Deployments could not be read: %v", err)
	}
	if len(managers) == 0 {
		return unknown("No Deployment of Cluster API's core manager was found.").with(known.Notes...)
	}
	if !known.Known {
		return unknown("The server's settings are not known.").with(known.Notes...).next("Give them with --values or --server-flags.")
	}
	var wrong, doubtful, told []string
	for i := range managers {
		d := &managers[i]
		name := fmt.Sprintf("Deployment %s/%s", d.Namespace, d.Name)
		flags, err := flagsOf(d)
		if err != nil {
			doubtful = append(doubtful, fmt.Sprintf("%s: its flags cannot be read: %v", name, err))
			continue
		}
		doubtful = append(doubtful, flags.disagree(name, known)...)
		told = append(told, flags.fewer(name, known)...)
		bad, doubt := gateDisagrees(name, settings.PropagationOf(d), known)
		wrong, doubtful = append(wrong, bad...), append(doubtful, doubt...)
	}
	switch {
	case len(wrong) > 0:
		return failed("Cluster API and Heirloom are told different things.").with(wrong...).with(doubtful...).
			next("Set clusterAPITaintPropagation=auto: docs/configuration.md")
	case len(doubtful) > 0:
		return warning("Cluster API and Heirloom are told different things.").with(doubtful...).with(told...).
			next("Give both the same values: docs/configuration.md")
	}
	const agree = "Feature gate, flags and watch filter of Cluster API's core manager agree with Heirloom's: MachineTaintPropagation is %s."
	return ok(agree, known.Propagation).with(told...)
}

// flagsOf reads the flags of a core manager.
func flagsOf(d *appsv1.Deployment) (coreFlags, error) {
	read := coreFlags{}
	fs := pflag.NewFlagSet("cluster-api", pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.Usage = func() {}
	fs.StringSliceVar(&read.labels, "additional-sync-machine-labels", nil, "")
	fs.StringSliceVar(&read.annotations, "additional-sync-machine-annotations", nil, "")
	fs.StringVar(&read.watchFilter, "watch-filter", "", "")
	manager := settings.ManagerOf(d)
	return read, fs.Parse(slices.Concat(manager.Command, manager.Args))
}

// disagree describes what makes a difference for Nodes.
func (f coreFlags) disagree(name string, known settings.Settings) []string {
	var all []string
	if ours := known.Config.WatchFilter; f.watchFilter != ours {
		all = append(all, fmt.Sprintf("%s has --watch-filter=%q, and Heirloom %q: what only one of them watches is not handled by both",
			name, f.watchFilter, ours))
	}
	for _, one := range only(f.labels, known.Config.AdditionalSyncMachineLabels) {
		all = append(all, fmt.Sprintf("%s syncs labels %q, and Heirloom does not: a new Node gets them only after it has registered", name, one))
	}
	for _, one := range only(f.annotations, known.Config.AdditionalSyncMachineAnnotations) {
		all = append(all, fmt.Sprintf("%s syncs annotations %q, and Heirloom does not: a new Node gets them only after it has registered", name, one))
	}
	return all
}

// fewer describes what only Heirloom syncs, which is fine.
func (f coreFlags) fewer(name string, known settings.Settings) []string {
	var all []string
	for _, one := range only(known.Config.AdditionalSyncMachineLabels, f.labels) {
		all = append(all, fmt.Sprintf("labels %q are synced by Heirloom alone, not by %s", one, name))
	}
	for _, one := range only(known.Config.AdditionalSyncMachineAnnotations, f.annotations) {
		all = append(all, fmt.Sprintf("annotations %q are synced by Heirloom alone, not by %s", one, name))
	}
	return all
}

// only returns what is in the first list and not in the second.
func only(has, hasNot []string) []string {
	return slices.DeleteFunc(slices.Clone(has), func(one string) bool { return slices.Contains(hasNot, one) })
}

// gateDisagrees compares Cluster API's feature gate with what Heirloom was told.
func gateDisagrees(name string, gate inherit.TaintPropagation, known settings.Settings) (wrong, doubtful []string) {
	told := known.Config.Rules.ClusterAPITaints
	switch {
	case known.Config.DetectTaintPropagation, told == gate:
	case gate == inherit.PropagationUnknown:
		doubtful = append(doubtful, fmt.Sprintf("Heirloom was told that MachineTaintPropagation is %s, and what it is in %s is not known", told, name))
	case gate == inherit.PropagationDisabled:
		wrong = append(wrong, name+" has MachineTaintPropagation off, and Heirloom was told that it is on: Cluster API refuses what Heirloom writes")
	default:
		doubtful = append(doubtful, name+" has MachineTaintPropagation on, and Heirloom was told that it is off: typed taints are not inherited")
	}
	return wrong, doubtful
}
