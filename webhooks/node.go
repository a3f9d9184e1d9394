// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// kubeletUserPrefix is followed by the name of the kubelet's Node.
const kubeletUserPrefix = "system:node:"

// nodes injects into a Node the entries that its Machine or MachinePool declares (rules 11, 12 and 13).
//
// It must never stop a cluster. It does not change a kubelet's own updates, because NodeRestriction runs again after Heirloom and would
// reject them. On a kubelet's create, it adds only entries that NodeRestriction accepts (docs/design.md §4).
type nodes struct{ Dependencies }

// nodesOf returns the decider for the Nodes of the Cluster.
func nodesOf(d Dependencies, cluster types.NamespacedName) nodes {
	d.Chain = d.Chain.Within(cluster)
	return nodes{d}
}

func (h nodes) decide(ctx context.Context, req admission.Request) (answer, error) {
	registering := slices.Contains(req.UserInfo.Groups, user.NodesGroup)
	if registering && req.Operation != admissionv1.Create {
		return unmatched(), nil
	}
	object, err := decodeNode(req.Object)
	if err != nil {
		return answer{}, err
	}
	if registering && req.UserInfo.Username != kubeletUserPrefix+object.Name {
		return unmatched(), nil
	}
	asCreated(req, object)
	policy, node, turn := h.Policy(), inherit.ReadNode(object, time.Now()), inherit.Turn{Registering: registering, Stored: stored(req)}
	if policy.PaceEviction { // the loop adds the taints, at a limited rate
		turn.Eviction = inherit.Waits
	}
	changesUpdate := func(p owners.NodePlan) bool { return req.Operation == admissionv1.Update && p.Changes() }
	p, err := owners.Recheck(ctx, h.Chain, changesUpdate, func(ctx context.Context, chain *owners.Chain) (owners.NodePlan, error) {
		return chain.PlanNode(ctx, node, policy, turn)
	})
	if err != nil {
		return answer{}, err
	}
	if !p.Inherits() {
		return untouched(ctx, p.Reason), nil
	}
	return h.answer(ctx, p), nil
}

func (h nodes) answer(ctx context.Context, p owners.NodePlan) answer {
	decided := answer{outcome: metrics.Unchanged, observed: p.Observed}
	if p.Changes() {
		decided.outcome, decided.patch = metrics.Injected, patchNode(p.Node.NodeState, p.Result)
		decided.brought, decided.removed, decided.kept = sorts(p.Added), sorts(p.Removed), sorts(p.Kept)
		decided.warnings = h.warnings(ctx, p.Source, p.Kept)
	}
	if problems := p.LeftOut.Problems(); problems != nil {
		decided.warn(h.Chain.NodeSources(ctx, p.Source).Located(problems))
	}
	return decided
}

// stored returns the Node before an update. It is empty for a create, or if the old object cannot be decoded: the answer is still right,
// and the loop puts back taints that may evict Pods.
func stored(req admission.Request) *inherit.NodeState {
	state := inherit.NodeState{}
	if req.Operation == admissionv1.Update {
		if old, err := decodeNode(req.OldObject); err == nil {
			state = inherit.OfNode(old)
		}
	}
	return &state
}

// patchNode returns one operation for each part of the Node that changes.
func patchNode(current, result inherit.NodeState) (patch []jsonpatch.Operation) {
	add := func(path string, same bool, value any) {
		if !same {
			patch = append(patch, jsonpatch.NewOperation("add", path, value))
		}
	}
	add("/metadata/labels", maps.Equal(current.Labels, result.Labels), result.Labels)
	add("/metadata/annotations", maps.Equal(current.Annotations, result.Annotations), result.Annotations)
	add("/spec/taints", inherit.NodeState{Taints: current.Taints}.Equal(inherit.NodeState{Taints: result.Taints}), result.Taints)
	return patch
}

// sorts returns the type of each entry (label, annotation or taint), for the metrics.
func sorts(keys []inherit.NodeKey) []string {
	var what []string
	for _, key := range keys {
		what = append(what, key.What)
	}
	return what
}

// warnings tells the writer which objects to edit to change the kept entries.
func (h nodes) warnings(ctx context.Context, from inherit.NodeSource, kept []inherit.NodeKey) []string {
	if len(kept) == 0 {
		return nil
	}
	sources := h.Chain.NodeSources(ctx, from)
	return warnings(kept, func(key inherit.NodeKey) string {
		return fmt.Sprintf("heirloom: %s was kept: the Node inherits it from %s; to change it, edit %s",
			key, from, sources.Of(key.Entry))
	})
}
