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

// missing knows which Nodes lack what they should have by now, as far as the loop has seen them.
type missing struct {
	metrics *metrics.Metrics
	// taints are Nodes without an Always taint, labels are new Nodes without labels that their kubelets may not set.
	taints, labels *tracked[NodeRequest]
}

func newMissing(m *metrics.Metrics) missing {
	return missing{metrics: m, taints: newTrackedNodes(m.NodesUnprotected), labels: newTracked[NodeRequest]()}
}

// see looks at the Node in a state that it has now.
func (l missing) see(req NodeRequest, policy inherit.Policy, from inherit.NodeSource, node *corev1.Node, state inherit.NodeState) {
	now := time.Now()
	l.taints.set(req, len(from.Unprotected(state)) > 0)
	waits := policy.Unlabelled(from, state) && (l.labels.has(req) || inherit.Registering(node, now))
	if waited := l.labels.set(req, waits); waited && !waits {
		l.metrics.NodeLabelled(now.Sub(node.CreationTimestamp.Time))
	}
}

// forget forgets a Node that is gone or inherits nothing for now.
func (l missing) forget(req NodeRequest) {
	l.labels.set(req, false)
	l.taints.set(req, false)
}

// known are all Nodes that lack something.
func (l missing) known() sets.Set[NodeRequest] {
	return l.taints.all().Union(l.labels.all())
}

// changed counts what a write has brought to a Node, and tells on its Machine or MachinePool what had been taken away or was broken.
func (r nodes) changed(from inherit.Owner, node *corev1.Node, before, after inherit.NodeState) {
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
			"Node %s did not say rightly which taints come from its Machine; mended, and what was broken is forgotten: %v", node.Name, broken)
	}
}
