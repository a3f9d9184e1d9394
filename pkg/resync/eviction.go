// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
	"github.com/heirloom-dev/heirloom/pkg/pace"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// paced returns the Machine as it counts for the Node now: without taints that would evict the Node's Pods before its turn
// has come. It also returns when to ask again.
func (r nodes) paced(
	ctx context.Context, chain *ownerchain.Chain, m *capi.Machine, node *corev1.Node, req NodeRequest,
) (*capi.Machine, time.Duration, error) {
	evicting := inherit.Evicting(m, node, time.Now())
	if len(evicting) == 0 {
		r.waitsNoMore(req)
		return m, 0, nil
	}
	group, name, err := r.groupOf(ctx, chain, m)
	if err != nil {
		return nil, 0, err
	}
	ok, again, progress := r.pacer.Pass(name, req)
	r.Metrics.NoExecuteWaiting(r.pacer.Waiting())
	if ok || progress.Waiting == 1 {
		r.report(group, evicting, progress)
	}
	if ok {
		return m, 0, nil
	}
	ctrl.LoggerFrom(ctx).V(2).Info("A taint that evicts Pods waits for its turn", "taints", evicting, "after", again)
	return inherit.WithoutTaints(m, evicting), again, nil
}

// forget forgets a Node that is gone or inherits nothing for now.
func (r nodes) forget(req NodeRequest) {
	r.lacking.forget(req)
	r.waitsNoMore(req)
}

// remembered are the Nodes of a Cluster that lack something, or wait for a taint.
func (r nodes) remembered(cluster types.NamespacedName) []NodeRequest {
	all := r.pacer.Known().Union(r.lacking.known())
	return slices.DeleteFunc(all.UnsortedList(), func(req NodeRequest) bool { return req.Cluster != cluster })
}

// waitsNoMore takes a Node that has nothing to wait for out of the count.
func (r nodes) waitsNoMore(req NodeRequest) {
	r.pacer.Forget(req)
	r.Metrics.NoExecuteWaiting(r.pacer.Waiting())
}

// groupOf returns the object whose Nodes share one pace, and its name: the MachineDeployment, or whatever else is at the top
// of the Machine's chain.
func (r nodes) groupOf(ctx context.Context, chain *ownerchain.Chain, m *capi.Machine) (client.Object, string, error) {
	if m.Kind == "MachinePool" { // it stands for the pool itself
		return m, ownerchain.Name(m.Kind, m), nil
	}
	owner, err := chain.MachineOwner(ctx, m)
	if err != nil {
		return nil, "", err
	}
	switch object := owner.Object.(type) {
	case nil:
		return m, ownerchain.Name("Machine", m), nil
	case *capi.MachineSet:
		md, err := chain.MachineDeployment(ctx, object)
		if err != nil {
			return nil, "", err
		}
		if md != nil {
			return md, ownerchain.Name("MachineDeployment", md), nil
		}
		return object, ownerchain.Name("MachineSet", object), nil
	default:
		return object, ownerchain.Name(object.GetObjectKind().GroupVersionKind().Kind, object), nil
	}
}

// report tells on the object that operators edit how far its taints have come.
func (r nodes) report(group client.Object, evicting []taint.ID, progress pace.Progress) {
	if progress.Waiting == 0 && progress.Passed <= 1 {
		return // it is one Node, and had not to wait
	}
	reason, note := reasonNoExecuteTaintsRollingOut, fmt.Sprintf("Taints %v evict Pods: %d Nodes have them, %d wait for their turn (--no-execute-rate)",
		evicting, progress.Passed, progress.Waiting)
	if progress.Waiting == 0 {
		reason, note = reasonNoExecuteTaintsRolledOut, fmt.Sprintf("Taints %v are on all %d Nodes that had to wait for them", evicting, progress.Passed)
	}
	r.Recorder.Eventf(group, nil, corev1.EventTypeNormal, reason, "Inherit", "%s", note)
}
