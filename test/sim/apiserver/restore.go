// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Load stores an object as it is, with its UID and managed fields, as a restore does.
func (s *Server) Load(object *unstructured.Unstructured) error {
	for _, k := range s.kinds {
		if k.gvk != object.GroupVersionKind() {
			continue
		}
		loaded := k.main.fresh()
		if into, ok := loaded.(*unstructured.Unstructured); ok {
			into.Object = object.DeepCopy().Object
		} else if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, loaded); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.store(k.table, keyOf(object.GetNamespace(), object.GetName()), nil, k.main.save(loaded), Write{User: "etcd", Verb: "load", GVR: k.gvr})
		return nil
	}
	return fmt.Errorf("%s is not served", object.GroupVersionKind())
}

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
