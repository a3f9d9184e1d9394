// SPDX-License-Identifier: Apache-2.0

package apiserver

import "k8s.io/apimachinery/pkg/runtime/schema"

// Lose removes an object from the store, as if a restore had not brought it back, and returns a function that brings it back as it was. An
// object of the same name that exists by then stays.
func (s *Server) Lose(gvr schema.GroupVersionResource, namespace, name string) (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, key := s.byGVR[gvr].table, keyOf(namespace, name)
	before := t.objects[key]
	if before == nil {
		return func() {}
	}
	s.store(t, key, before, nil, Write{User: "etcd", Verb: "lose", GVR: gvr})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.objects[key] == nil {
			s.store(t, key, nil, before.DeepCopyObject(), Write{User: "etcd", Verb: "restore", GVR: gvr})
		}
	}
}
