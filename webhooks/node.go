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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/taint"
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

// nodePlan is the decision about a Node and the state that carries it out.
type nodePlan struct {
	owners.NodeDecision
	current, result inherit.NodeState
	dropped         inherit.Drops
}

func (p nodePlan) changes() bool { return p.Inherits() && !p.result.Equal(p.current) }

func (h nodes) decide(ctx context.Context, req admission.Request) (answer, error) {
	writer := writerOf(req)
	if writer == inherit.Kubelet && req.Operation != admissionv1.Create {
		return unmatched(), nil
	}
	node, err := decodeNode(req.Object)
	if err != nil {
		return answer{}, err
	}
	if writer == inherit.Kubelet && req.UserInfo.Username != kubeletUserPrefix+node.Name {
		return unmatched(), nil
	}
	asCreated(req, node)
	changesUpdate := func(p nodePlan) bool { return req.Operation == admissionv1.Update && p.changes() }
	p, err := owners.Recheck(ctx, h.Chain, changesUpdate, func(ctx context.Context, chain *owners.Chain) (nodePlan, error) {
		return h.plan(ctx, chain, req, node, writer)
	})
	if err != nil {
		return answer{}, err
	}
	if !p.Inherits() {
		return untouched(ctx, p.Reason), nil
	}
	decided := h.answer(ctx, req, p)
	decided.observed = p.Observed
	return decided, nil
}

// plan evaluates the Node with the data of the chain.
func (h nodes) plan(ctx context.Context, chain *owners.Chain, req admission.Request, node *corev1.Node, writer inherit.Writer) (p nodePlan, err error) {
	policy := h.Policy()
	if p.NodeDecision, err = chain.EvaluateNode(ctx, node, policy); err != nil || !p.Inherits() {
		return p, err
	}
	p.current = inherit.OfNode(node, time.Now())
	p.result, p.dropped = policy.NodeHolding(p.Source, held(req, policy, p.Source, node), p.current, writer)
	return p, nil
}

func (h nodes) answer(ctx context.Context, req admission.Request, p nodePlan) answer {
	decided := answer{outcome: metrics.Unchanged}
	if p.changes() {
		decided = answer{outcome: metrics.Injected, patch: patchNode(p.current, p.result)}
		decided.brought, decided.removed = sorts(inherit.Brought(p.current, p.result)), sorts(inherit.Removed(p.current, p.result))
		kept := inherit.Kept(inherit.OfNode(stored(req), time.Now()), p.current, p.result) // although the request removes them
		decided.kept, decided.warnings = sorts(kept), h.warnings(ctx, p.Source, kept)
	}
	if problems := p.dropped.Problems(); problems != nil {
		decided.warn(h.Chain.NodeSources(ctx, p.Source).Located(problems))
	}
	return decided
}

// held returns the taints that would evict Pods of a Node in use: the loop applies them at a limited rate. A taint that the stored Node
// has evicts no Pods when it is put back.
func held(req admission.Request, policy inherit.Policy, from inherit.NodeSource, node *corev1.Node) []taint.ID {
	now := time.Now()
	if !policy.PaceEviction || len(from.Evicting(node, nil, now)) == 0 {
		return nil
	}
	return from.Evicting(node, stored(req).Spec.Taints, now)
}

// stored returns the Node before an update. It is empty for a create, or if the old object cannot be decoded: the answer is still right,
// and the loop puts back taints that may evict Pods.
func stored(req admission.Request) *corev1.Node {
	if req.Operation == admissionv1.Update {
		if old, err := decodeNode(req.OldObject); err == nil {
			return old
		}
	}
	return &corev1.Node{}
}

func writerOf(req admission.Request) inherit.Writer {
	return inherit.Writer(slices.Contains(req.UserInfo.Groups, user.NodesGroup))
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
