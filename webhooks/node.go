// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
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
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// kubeletUserPrefix is followed by the name of the kubelet's Node.
const kubeletUserPrefix = "system:node:"

// nodes injects into a Node what its Machine declares (rules 11, 12 and 13).
//
// It must never stop a cluster. It does not touch a kubelet's own updates, because NodeRestriction runs again after us and would
// refuse them. On a kubelet's create, it adds only what NodeRestriction accepts (docs/design.md §4).
type nodes struct{ Dependencies }

// nodesOf answers about the Nodes of that Cluster.
func nodesOf(d Dependencies, cluster types.NamespacedName) nodes {
	d.Chain = d.Chain.Within(cluster)
	return nodes{d}
}

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
	return h.recheck(ctx, req, func(ctx context.Context, chain *ownerchain.Chain) (answer, error) {
		return h.against(ctx, req, node, chain)
	})
}

// against decides by what the chain knows.
func (h nodes) against(ctx context.Context, req admission.Request, node *corev1.Node, chain *ownerchain.Chain) (answer, error) {
	writer, policy := writerOf(req), h.Policy()
	decision, err := chain.EvaluateNode(ctx, node, policy)
	if err != nil {
		return answer{}, err
	}
	if !decision.Inherits() {
		return untouched(ctx, decision.Reason), nil
	}
	from := decision.Source
	current := inherit.OfNode(node)
	result, leftOut := policy.NodeHolding(from, held(req, policy, from, node), current, writer)
	decided := answer{outcome: metrics.Unchanged}
	if !result.Equal(current) {
		decided = answer{outcome: metrics.Injected, patch: patchNode(current, result)}
		decided.brought, decided.removed = sorts(inherit.Brought(current, result)), sorts(inherit.Removed(current, result))
		kept := keptOfNode(req, current, result)
		decided.kept, decided.warnings = sorts(kept), h.warnings(ctx, from, kept)
	}
	if leftOut != nil {
		decided.warn(h.Chain.NodeSources(ctx, from).Located(leftOut))
	}
	return decided, nil
}

// held returns the taints that would evict Pods of a Node in use: the loop applies them at their own pace. A taint that the Node is
// stored with evicts no Pods when it is put back.
func held(req admission.Request, policy inherit.Policy, from inherit.NodeSource, node *corev1.Node) []taint.ID {
	now := time.Now()
	if !policy.PaceEviction || len(from.Evicting(node, nil, now)) == 0 {
		return nil
	}
	var before []corev1.Taint
	if req.Operation == admissionv1.Update {
		if old, err := decodeNode(req.OldObject); err == nil { // without it, the loop puts it back
			before = old.Spec.Taints
		}
	}
	return from.Evicting(node, before, now)
}

func writerOf(req admission.Request) inherit.Writer {
	return inherit.Writer(slices.Contains(req.UserInfo.Groups, user.NodesGroup))
}

// patchNode returns one operation for each part of the Node that changes.
func patchNode(current, result inherit.NodeState) []jsonpatch.Operation {
	var patch []jsonpatch.Operation
	if !(inherit.NodeState{Labels: current.Labels}).Equal(inherit.NodeState{Labels: result.Labels}) {
		patch = append(patch, jsonpatch.NewOperation("add", "/metadata/labels", result.Labels))
	}
	if !(inherit.NodeState{Annotations: current.Annotations}).Equal(inherit.NodeState{Annotations: result.Annotations}) {
		patch = append(patch, jsonpatch.NewOperation("add", "/metadata/annotations", result.Annotations))
	}
	if !(inherit.NodeState{Taints: current.Taints}).Equal(inherit.NodeState{Taints: result.Taints}) {
		patch = append(patch, jsonpatch.NewOperation("add", "/spec/taints", result.Taints))
	}
	return patch
}

// keptOfNode returns what the Node inherits and the request tried to remove. Without the old object this is not known, but the
// answer is right all the same.
func keptOfNode(req admission.Request, current, result inherit.NodeState) []inherit.NodeKey {
	if req.Operation != admissionv1.Update {
		return nil
	}
	old, err := decodeNode(req.OldObject)
	if err != nil {
		return nil
	}
	return inherit.Kept(inherit.OfNode(old), current, result)
}

// sorts returns what each of these is, for the metrics.
func sorts(keys []inherit.NodeKey) []string {
	var what []string
	for _, key := range keys {
		what = append(what, key.What)
	}
	return what
}

// warnings tells the writer where to change what was kept.
func (h nodes) warnings(ctx context.Context, from inherit.NodeSource, kept []inherit.NodeKey) []string {
	if len(kept) == 0 {
		return nil
	}
	sources := h.Chain.NodeSources(ctx, from)
	return warnings(kept, func(key inherit.NodeKey) string {
		return fmt.Sprintf("heirloom: %s was kept: the Node inherits it from %s; to change it, edit %s",
			key, from, sources.Of(key.Entry()))
	})
}
