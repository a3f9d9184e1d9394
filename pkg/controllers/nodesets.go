// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// nodeSet is a set of Nodes, which counts them by Cluster. It is safe for concurrent use.
type nodeSet struct {
	// report is called with the number of a Cluster's Nodes whenever it changes, while the set is locked. It may be nil.
	report func(cluster types.NamespacedName, nodes int)

	mu    sync.Mutex
	names map[types.NamespacedName]sets.Set[string]
	total int
}

func newNodeSet(report func(cluster types.NamespacedName, nodes int)) *nodeSet {
	return &nodeSet{report: report, names: map[types.NamespacedName]sets.Set[string]{}}
}

// set adds or removes a Node, and reports whether the Node was a member.
func (s *nodeSet) set(req NodeRequest, member bool) (was bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.names[req.Cluster]
	if was = names.Has(req.Name); was == member {
		return was
	}
	switch {
	case !member:
		s.total--
		if names.Delete(req.Name); len(names) == 0 {
			delete(s.names, req.Cluster)
		}
	case names == nil:
		s.total++
		s.names[req.Cluster] = sets.New(req.Name)
	default:
		s.total++
		names.Insert(req.Name)
	}
	if s.report != nil {
		s.report(req.Cluster, len(s.names[req.Cluster]))
	}
	return was
}

func (s *nodeSet) has(req NodeRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[req.Cluster].Has(req.Name)
}

// in returns the members of a Cluster.
func (s *nodeSet) in(cluster types.NamespacedName) []NodeRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	var nodes []NodeRequest
	for name := range s.names[cluster] {
		nodes = append(nodes, NodeRequest{Cluster: cluster, Name: name})
	}
	return nodes
}

// counts returns how many members a Cluster has, and how many there are in all.
func (s *nodeSet) counts(cluster types.NamespacedName) (nodes, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.names[cluster]), s.total
}

// records remember the record of each Node (inherit.Record) that was valid when the loop last saw the Node, so that a kubelet
// cannot make it invalid to keep what its Machine loses.
type records struct {
	mu sync.Mutex
	of map[types.NamespacedName]map[string]string
}

// mostRecords is how many Nodes of a Cluster have their record remembered: as many as Kubernetes supports, twice.
const mostRecords = 10_000

func newRecords() *records {
	return &records{of: map[types.NamespacedName]map[string]string{}}
}

func (r *records) get(req NodeRequest) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[req.Cluster][req.Name]
}

func (r *records) set(req NodeRequest, record string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	nodes := r.of[req.Cluster]
	if nodes == nil {
		nodes = map[string]string{}
		r.of[req.Cluster] = nodes
	}
	if _, known := nodes[req.Name]; known || len(nodes) < mostRecords {
		nodes[req.Name] = record
	}
}

func (r *records) forget(req NodeRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of[req.Cluster], req.Name)
}

func (r *records) forgetAll(cluster types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, cluster)
}
