// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// roll is a list of those that something is true of, for metrics.
type roll[K comparable] struct {
	mu      sync.Mutex
	members map[K]bool
}

func newRoll[K comparable]() *roll[K] {
	return &roll[K]{members: map[K]bool{}}
}

// set puts one on the list or strikes it off, and reports whether it was on it.
func (r *roll[K]) set(one K, member bool) (was bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was = r.members[one]
	if member {
		r.members[one] = true
		return was
	}
	delete(r.members, one)
	return was
}

func (r *roll[K]) has(one K) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members[one]
}

// count returns of how many on the list that holds.
func (r *roll[K]) count(holds func(K) bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for one := range r.members {
		if holds(one) {
			n++
		}
	}
	return n
}

// all returns who is on the list.
func (r *roll[K]) all() sets.Set[K] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return sets.KeySet(r.members)
}

// perCluster is a roll of Nodes that tells of each cluster how many of its Nodes are on it.
type perCluster struct {
	*roll[NodeRequest]
	tell func(cluster types.NamespacedName, nodes int)
}

func newPerCluster(tell func(types.NamespacedName, int)) perCluster {
	return perCluster{newRoll[NodeRequest](), tell}
}

func (p perCluster) set(req NodeRequest, member bool) {
	if was := p.roll.set(req, member); was != member {
		p.tell(req.Cluster, p.count(func(other NodeRequest) bool { return other.Cluster == req.Cluster }))
	}
}
