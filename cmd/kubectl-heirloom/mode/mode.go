// SPDX-License-Identifier: Apache-2.0

// Package mode says for each Cluster whether Heirloom writes there, only observes, or skips it, and which object says so.
package mode

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Modes is the answer.
type Modes struct {
	metav1.TypeMeta `json:",inline"`

	Clusters []Cluster `json:"clusters"`
}

// Cluster is the mode of a Cluster.
type Cluster struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Mode is enforce, observe, or none if Heirloom skips the Cluster, and From is what sets it: Cluster, ClusterClass or installation.
	Mode string `json:"mode"`
	From string `json:"from"`
	// Note says why a label has no effect, or not the intended effect.
	Note string `json:"note,omitempty"`
}

// List returns the modes of Clusters. An error about a Cluster does not stop the others.
func List(ctx context.Context, w compare.World, keys []types.NamespacedName) (*Modes, error) {
	all, errs := &Modes{TypeMeta: metav1.TypeMeta{APIVersion: "cli.heirloom.dev/v1alpha1", Kind: "Modes"}, Clusters: []Cluster{}}, []error(nil)
	for _, key := range keys {
		cluster, err := compare.Cluster(ctx, w.Store, key)
		if err == nil {
			all.Clusters = append(all.Clusters, of(ctx, w, cluster))
		}
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// Set labels a Cluster with a mode, or removes the label if the mode is "", and returns the mode that the Cluster has then. It refuses a mode
// that would have no effect.
func Set(ctx context.Context, w compare.World, c client.Client, key types.NamespacedName, wanted string, dry cmdutil.DryRunStrategy) (after Cluster, err error) {
	cluster, err := compare.Cluster(ctx, c, key)
	if err != nil {
		return after, err
	}
	patch := client.MergeFrom(cluster.DeepCopy())
	metav1.SetMetaDataLabel(&cluster.ObjectMeta, inherit.ModeLabel, wanted)
	if wanted == "" {
		delete(cluster.Labels, inherit.ModeLabel)
	}
	if after = of(ctx, w, cluster); wanted != "" && after.Mode != wanted {
		return after, fmt.Errorf("setting Cluster %s to %s has no effect: %s", key, wanted, after.Note)
	}
	switch dry {
	case cmdutil.DryRunClient:
		return after, nil
	case cmdutil.DryRunServer:
		c = client.NewDryRunClient(c)
	}
	if err := c.Patch(ctx, cluster, patch, client.FieldOwner("kubectl-heirloom")); err != nil {
		return after, fmt.Errorf("labeling Cluster %s: %w", key, err)
	}
	return after, nil
}

// Valid reports whether a text is a mode.
func Valid(text string) bool {
	return text == string(inherit.Enforce) || text == string(inherit.Observe)
}

// of returns the mode of a Cluster.
func of(ctx context.Context, w compare.World, cluster *clusterv1.Cluster) Cluster {
	policy, found := w.Settings.Policy(), Cluster{Namespace: cluster.Namespace, Name: cluster.Name, Mode: "none", From: "installation"}
	class, err := w.Store.Chain(types.NamespacedName{}).ClusterClass(ctx, cluster)
	mode, enrolled := policy.ModeOf(cluster, class)
	label, labeled := cluster.Labels[inherit.ModeLabel]
	from := "Cluster"
	if !labeled && class != nil {
		label, labeled = class.Labels[inherit.ModeLabel]
		from = "ClusterClass"
	}
	why, leftOut := w.Settings.LeavesOut(cluster.Namespace)
	switch {
	case leftOut:
		found.Note = string(why)
	case policy.LeftToAnother(cluster):
		found.Note = "it" + inherit.NotFiltered + policy.WatchFilter
	case inherit.SkippedByLabel(cluster):
		found.From, found.Note = "Cluster", "skipped: IgnoreLabel"
	case inherit.Paused(cluster):
		found.From, found.Note = "Cluster", "skipped: Paused"
	case labeled && label == string(inherit.Enforce) && mode == inherit.Observe:
		found.Mode, found.Note = string(mode), "the installation only observes (--mode=observe), so it has no right to write"
	case labeled:
		if found.Mode, found.From = string(mode), from; !Valid(label) {
			found.Note = fmt.Sprintf("value %q of the label %s is neither enforce nor observe", label, inherit.ModeLabel)
		}
	case err != nil:
		found.Mode, found.Note = "unknown", cli.OneLine(err)
	case enrolled:
		found.Mode = string(mode)
	}
	return found
}

// Table implements cli.Result.
func (m *Modes) Table(bool) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: cli.Columns("Namespace", "Name", "Mode", "From", "Note")}
	for _, c := range m.Clusters {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{c.Namespace, c.Name, c.Mode, c.From, c.Note}})
	}
	return t
}
