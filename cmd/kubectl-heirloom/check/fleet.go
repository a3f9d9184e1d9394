// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const (
	// atOnce bounds how many Clusters are walked together. Most of it is waiting for those that do not answer.
	atOnce = 100
	// most is how many names of a sort are listed.
	most = 10
)

// fleet is all Clusters with everything below them.
type fleet struct {
	clusters []clusterState
	policy   inherit.Policy
}

// clusterState is one Cluster. err says that it could not be evaluated.
type clusterState struct {
	types.NamespacedName
	tree *snapshot.Tree
	err  error
	// withoutAPIServer says that the workload cluster does not exist yet.
	withoutAPIServer bool
}

func (w *world) walkFleet(ctx context.Context) (*fleet, error) {
	known, err := w.settings()
	if err != nil {
		return nil, err
	}
	if err := w.snapshot.Prefetch(ctx); err != nil {
		return nil, err
	}
	list := &clusterv1.ClusterList{}
	if err := w.snapshot.List(ctx, list, client.InNamespace(known.Config.Namespace)); err != nil {
		return nil, fmt.Errorf("listing Clusters: %w", err)
	}
	all := &fleet{clusters: make([]clusterState, len(list.Items)), policy: known.Policy()}
	group := errgroup.Group{}
	group.SetLimit(atOnce)
	for i := range list.Items {
		group.Go(func() error {
			all.clusters[i] = w.walk(ctx, &list.Items[i], known)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(all.clusters, func(a, b clusterState) int { return strings.Compare(a.String(), b.String()) })
	return all, nil
}

func (w *world) walk(ctx context.Context, cluster *clusterv1.Cluster, known settings.Settings) clusterState {
	state := clusterState{NamespacedName: client.ObjectKeyFromObject(cluster), withoutAPIServer: !ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false)}
	state.tree, state.err = w.snapshot.Walk(ctx, state.NamespacedName, known, known.Policy(), w.nodes)
	return state
}

// nodes reads the Nodes of a workload cluster.
func (w *world) nodes(ctx context.Context, cluster types.NamespacedName) (client.Reader, error) {
	list, err := within(ctx, forCluster, func(ctx context.Context) (*corev1.NodeList, error) {
		workload, err := w.Workload(ctx, cluster)
		if err != nil {
			return nil, err
		}
		list := &corev1.NodeList{}
		return list, workload.List(ctx, list)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("it did not answer within %s", forCluster)
	}
	return readNodes{nodes: list}, err
}

// readNodes answers with Nodes that have been read.
type readNodes struct {
	client.Reader
	nodes *corev1.NodeList
}

// List implements client.Reader.
func (r readNodes) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	into, isNodes := list.(*corev1.NodeList)
	if !isNodes {
		return fmt.Errorf("only Nodes have been read, and not %T", list)
	}
	r.nodes.DeepCopyInto(into)
	return nil
}

// each calls a function for every object of a Cluster.
func (s clusterState) each(call func(*snapshot.Member)) {
	if s.tree == nil {
		return
	}
	var below func(*snapshot.Member)
	below = func(m *snapshot.Member) {
		call(m)
		for _, child := range m.Children {
			below(child)
		}
	}
	for _, child := range s.tree.Children {
		below(child)
	}
}

// nameOf names an object of a Cluster.
func (s clusterState) nameOf(m *snapshot.Member) string {
	if m.Node != nil {
		return fmt.Sprintf("Node %s of Cluster %s", m.Object.GetName(), s)
	}
	return m.String()
}

// unread describes the Clusters that could not be evaluated.
func (f *fleet) unread() []string {
	var all []string
	for _, c := range f.clusters {
		if c.err != nil {
			all = append(all, fmt.Sprintf("Cluster %s could not be read: %v", c, c.err))
		}
	}
	return all
}

// some lists names, ten at most.
func some(names []string) string {
	names = slices.Clone(names)
	slices.Sort(names)
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// first returns ten of the lines at most, and how many more there are.
func first(lines []string) []string {
	if more := len(lines) - most; more > 0 {
		return append(slices.Clone(lines[:most]), fmt.Sprintf("and %d more", more))
	}
	return lines
}
