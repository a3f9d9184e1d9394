// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// pendingWrites remembers the objects whose writes are only observed, and counts them by Cluster and kind. A root names a reconcile, which is
// about one object of each kind at most. It is safe for concurrent use.
type pendingWrites struct {
	report func(cluster types.NamespacedName, kind string, objects int)

	mu sync.Mutex
	// of has the Cluster of each object, by root and kind.
	of     map[string]map[schema.GroupKind]types.NamespacedName
	counts map[pendingCount]int
}

type pendingCount struct {
	cluster types.NamespacedName
	kind    string
}

func newPendingWrites(m *metrics.Metrics) *pendingWrites {
	return &pendingWrites{report: m.PendingWrites, of: map[string]map[schema.GroupKind]types.NamespacedName{}, counts: map[pendingCount]int{}}
}

// rootOf returns the root of a request to the controller of a resource.
func rootOf(resource string, req ctrl.Request) string { return resource + " " + req.String() }

func (p *pendingWrites) set(root string, gk schema.GroupKind, cluster types.NamespacedName, pending bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, known := p.of[root][gk]
	if known == pending {
		return
	}
	if p.of[root] == nil {
		p.of[root] = map[schema.GroupKind]types.NamespacedName{}
	}
	change := 1
	if p.of[root][gk] = cluster; known {
		cluster, change = was, -1
		delete(p.of[root], gk)
	}
	if len(p.of[root]) == 0 {
		delete(p.of, root)
	}
	of := pendingCount{cluster, metrics.Kind(gk.Group, gk.Kind)}
	if p.counts[of] += change; p.counts[of] == 0 {
		delete(p.counts, of)
	}
	p.report(of.cluster, of.kind, p.counts[of])
}

// forget drops the objects of a root that is gone.
func (p *pendingWrites) forget(root string) {
	p.mu.Lock()
	kinds := slices.Collect(maps.Keys(p.of[root]))
	p.mu.Unlock()
	for _, gk := range kinds {
		p.set(root, gk, types.NamespacedName{}, false)
	}
}

// observe reports the changes that a plan would write, instead of the write.
func (d *Dependencies) observe(object client.Object, p planned) {
	if !p.due() {
		return
	}
	var adds, removes []string
	for _, change := range p.Changes() {
		if change.Value == nil {
			removes = append(removes, fmt.Sprint(change))
		} else {
			adds = append(adds, fmt.Sprint(change))
		}
	}
	d.wouldWrite(object, "", adds, removes)
}

// observeNode reports the changes that a plan would write to the Node, on its Machine or MachinePool. NoExecute taints would come sooner or
// later.
func (r *nodes) observeNode(v *visit, p owners.NodePlan) {
	p.NodePlan = v.policy.PlanNode(v.node, p.Source, inherit.Turn{OpensGates: true})
	names := func(keys []inherit.NodeKey) (all []string) {
		for _, key := range keys {
			all = append(all, fmt.Sprint(key))
		}
		return all
	}
	adds, removes := names(p.Added), names(p.Removed)
	r.pendingNodes.set(v.NodeRequest, len(adds)+len(removes) > 0)
	r.wouldWrite(p.Source.Object, " on Node "+v.Name, adds, removes)
}

// wouldWrite records an Event on the object about additions, and another about removals. Their actions differ, because a recorder treats
// Events with the same reason and action as a series, and sends a series only every few minutes.
func (d *Dependencies) wouldWrite(object runtime.Object, where string, adds, removes []string) {
	for action, keys := range map[string][]string{"Add": adds, "Remove": removes} {
		if len(keys) > 0 {
			d.Recorder.Eventf(object, nil, corev1.EventTypeNormal, reasonWouldWrite, action, "Observing only; would %s %s%s",
				strings.ToLower(action), strings.Join(keys, ", "), where)
		}
	}
}
