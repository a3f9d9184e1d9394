// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

// missing knows which Nodes miss something that they should have by now, as far as the loop has seen them.
type missing struct {
	metrics *metrics.Metrics
	// taints holds Nodes without an Always taint, labels holds new Nodes without labels that their kubelets may not set.
	taints, labels *tracked[NodeRequest]
}

func newMissing(m *metrics.Metrics) missing {
	return missing{metrics: m, taints: newTrackedNodes(m.NodesUnprotected), labels: newTracked[NodeRequest]()}
}

// see records what the Node misses in its current state.
func (m missing) see(req NodeRequest, policy inherit.Policy, from inherit.NodeSource, node *corev1.Node, state inherit.NodeState) {
	now := time.Now()
	m.taints.set(req, len(from.Unprotected(state)) > 0)
	waits := policy.Unlabelled(from, state) && (m.labels.has(req) || inherit.Registering(node, now))
	if waited := m.labels.set(req, waits); waited && !waits {
		m.metrics.NodeLabelled(now.Sub(node.CreationTimestamp.Time))
	}
}

// forget forgets a Node that is gone or inherits nothing for now.
func (m missing) forget(req NodeRequest) {
	m.labels.set(req, false)
	m.taints.set(req, false)
}

// known returns all Nodes that miss something.
func (m missing) known() sets.Set[NodeRequest] {
	return m.taints.all().Union(m.labels.all())
}

// changed counts what a write changed on a Node, and reports repaired drift and broken records on its Machine or MachinePool.
func (r nodeReconciler) changed(from inherit.Owner, node *corev1.Node, before, after inherit.NodeState) {
	for _, key := range inherit.Brought(before, after) {
		r.Metrics.Key(metrics.ByResync, "Node", key.What, metrics.KeyInjected)
	}
	for _, key := range inherit.Removed(before, after) {
		r.Metrics.Key(metrics.ByResync, "Node", key.What, metrics.KeyRemoved)
	}
	if lost := inherit.Lost(before, after); len(lost) > 0 {
		names := make([]string, 0, len(lost))
		for _, key := range lost {
			r.Metrics.Drift(metrics.ByResync, "Node", key.What)
			names = append(names, fmt.Sprint(key))
		}
		r.Recorder.Eventf(from, nil, corev1.EventTypeNormal, reasonDriftRepaired, "Inherit",
			"Node %s had lost what it inherits: %s put back", node.Name, strings.Join(names, ", "))
	}
	if broken := inherit.BrokenTracking(before); broken != nil {
		r.Recorder.Eventf(from, nil, corev1.EventTypeWarning, reasonTrackingAnnotationBroken, "Inherit",
			"Node %s had a wrong record of which taints come from its Machine; the record is repaired, broken parts are dropped: %v", node.Name, broken)
	}
}
