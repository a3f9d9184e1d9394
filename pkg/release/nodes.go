// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// nodes releases the Nodes of a cluster.
func (s *session) nodes(ctx context.Context, c reporting, ours func(*corev1.Node) bool) {
	s.each(ctx, c, nodeKind(), "", marked,
		func(ctx context.Context, object *metav1.PartialObjectMetadata) (bool, error) {
			return s.node(ctx, c, object.Name, ours)
		})
}

func nodeKind() schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind("Node") }

// marked reports whether there may be something of Heirloom on a Node, by its metadata.
func marked(node *metav1.PartialObjectMetadata) bool {
	state := inherit.NodeState{Labels: node.Labels, Annotations: node.Annotations}
	return managedfields.Recorded(node.ManagedFields) || !inherit.Release(state, true).Equal(state)
}

// node releases one Node, and reports whether that changed it.
func (s *session) node(ctx context.Context, c reporting, name string, ours func(*corev1.Node) bool) (changed bool, err error) {
	node := &corev1.Node{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if !ours(node) {
		return false, nil
	}
	before := inherit.OfNode(node)
	after := inherit.Release(before, s.KeepValues)
	if after.Equal(before) && !managedfields.Recorded(node.ManagedFields) {
		return false, nil
	}
	details := lost(before, after)
	if !s.DryRun {
		released, err := patchNode(ctx, c, node, after)
		if err == nil && managedfields.Recorded(released.ManagedFields) {
			// Taints are one field, which is now ours because the first patch changed it.
			released, err = patchNode(ctx, c, released, after)
		}
		if err != nil {
			return false, client.IgnoreNotFound(err)
		}
		if !inherit.OfNode(released).Equal(after) {
			return false, errReclaimed
		}
		details = nil
	}
	s.report.did("released", nodeKind().GroupKind(), node, c.where, details...)
	return true, nil
}

// patchNode writes a Node's new state, without our entries in its managed fields. Taints are one atomic list, so the patch
// holds only for the version that was read.
func patchNode(ctx context.Context, c client.Client, node *corev1.Node, state inherit.NodeState) (*corev1.Node, error) {
	released := node.DeepCopy()
	released.Labels, released.Annotations, released.Spec.Taints = state.Labels, state.Annotations, state.Taints
	released.ManagedFields = managedfields.Forget(node.ManagedFields)
	patch := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
	return released, c.Patch(ctx, released, patch, client.FieldOwner(managedfields.Manager))
}

// lost names what a Node no longer has, as field paths.
func lost(before, after inherit.NodeState) []string {
	var names []string
	for _, part := range []struct {
		name          string
		before, after map[string]string
	}{{"labels", before.Labels, after.Labels}, {"annotations", before.Annotations, after.Annotations}} {
		for _, key := range slices.Sorted(maps.Keys(part.before)) {
			if value, has := part.after[key]; !has || value != part.before[key] {
				names = append(names, fmt.Sprintf(".metadata.%s.%s", part.name, key))
			}
		}
	}
	for _, t := range before.Taints {
		if taint.Find(after.Taints, taint.IDOf(t)) < 0 {
			names = append(names, fmt.Sprintf(".spec.taints[effect=%q,key=%q]", t.Effect, t.Key))
		}
	}
	return names
}
