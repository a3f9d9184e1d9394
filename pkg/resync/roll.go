// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// roll is a set that is safe for concurrent use.
type roll[K comparable] struct {
	// changed is called with each member that comes or goes, while the set is locked. It may be nil.
	changed func(K)

	mu      sync.Mutex
	members sets.Set[K]
}

func newRoll[K comparable]() *roll[K] {
	return &roll[K]{members: sets.New[K]()}
}

// newNodeRoll returns a set of Nodes that reports how many of a Cluster's are in it.
func newNodeRoll(report func(cluster types.NamespacedName, nodes int)) *roll[NodeRequest] {
	nodes := newRoll[NodeRequest]()
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
func (r *roll[K]) set(one K, member bool) (was bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was = r.members.Has(one)
	if member {
		r.members.Insert(one)
	} else {
		r.members.Delete(one)
	}
	if was != member && r.changed != nil {
		r.changed(one)
	}
	return was
}

func (r *roll[K]) has(one K) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members.Has(one)
}

// all returns a copy.
func (r *roll[K]) all() sets.Set[K] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members.Clone()
}
