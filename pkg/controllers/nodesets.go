// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// byNode holds a value for each Node, and counts the Nodes of each Cluster that have a value. The zero value of V is no value. It is safe
// for concurrent use.
type byNode[V comparable] struct {
	// report is called with the number of a Cluster's Nodes that have a value whenever a value changes, under the lock. It may be nil.
	report func(cluster types.NamespacedName, nodes int)

	mu    sync.Mutex
	of    map[types.NamespacedName]map[string]V
	total int
}

// nodeSet is a set of Nodes.
type nodeSet = byNode[bool]

func newByNode[V comparable](report func(cluster types.NamespacedName, nodes int)) *byNode[V] {
	return &byNode[V]{report: report, of: map[types.NamespacedName]map[string]V{}}
}

// set sets the value of a Node, and returns the previous value.
func (b *byNode[V]) set(req NodeRequest, value V) (was V) {
	b.mu.Lock()
	defer b.mu.Unlock()
	nodes := b.of[req.Cluster]
	if was = nodes[req.Name]; was == value {
		return was
	}
	if nodes == nil {
		nodes = map[string]V{}
		b.of[req.Cluster] = nodes
	}
	b.total -= len(nodes)
	if nodes[req.Name] = value; value == *new(V) {
		delete(nodes, req.Name)
	}
	b.total += len(nodes)
	if len(nodes) == 0 {
		delete(b.of, req.Cluster)
	}
	if b.report != nil {
		b.report(req.Cluster, len(nodes))
	}
	return was
}

func (b *byNode[V]) get(req NodeRequest) V {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[req.Cluster][req.Name]
}

// having returns the number of Nodes of a Cluster that have this value.
func (b *byNode[V]) having(cluster types.NamespacedName, value V) (nodes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, has := range b.of[cluster] {
		if has == value {
			nodes++
		}
	}
	return nodes
}

// in returns the Nodes of a Cluster that have a value.
func (b *byNode[V]) in(cluster types.NamespacedName) []NodeRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	var nodes []NodeRequest
	for name := range b.of[cluster] {
		nodes = append(nodes, NodeRequest{Cluster: cluster, Name: name})
	}
	return nodes
}

// counts returns the number of Nodes with a value in a Cluster, and in all Clusters.
func (b *byNode[V]) counts(cluster types.NamespacedName) (nodes, total int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.of[cluster]), b.total
}
