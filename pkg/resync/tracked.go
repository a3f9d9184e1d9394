// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// tracked is a set that is safe for concurrent use.
type tracked[K comparable] struct {
	// changed is called with each member that is added or removed, while the set is locked. It may be nil.
	changed func(K)

	mu      sync.Mutex
	members sets.Set[K]
}

func newTracked[K comparable]() *tracked[K] {
	return &tracked[K]{members: sets.New[K]()}
}

// newTrackedNodes returns a set of Nodes that reports how many of a Cluster's are in it.
func newTrackedNodes(report func(cluster types.NamespacedName, nodes int)) *tracked[NodeRequest] {
	nodes := newTracked[NodeRequest]()
	nodes.changed = func(of NodeRequest) {
		count := 0
		for req := range nodes.members {
			if req.Cluster == of.Cluster {
				count++
			}
		}
		report(of.Cluster, count)
	}
	return nodes
}

// set adds or removes one, and reports whether it was in the set.
func (t *tracked[K]) set(one K, member bool) (was bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was = t.members.Has(one)
	if member {
		t.members.Insert(one)
	} else {
		t.members.Delete(one)
	}
	if was != member && t.changed != nil {
		t.changed(one)
	}
	return was
}

func (t *tracked[K]) has(one K) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.members.Has(one)
}

// all returns a copy.
func (t *tracked[K]) all() sets.Set[K] {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.members.Clone()
}
