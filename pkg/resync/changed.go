// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// changed passes updates that change something that the caches keep, which is what the rules read, and resyncs. It drops most writes of
// status, such as the heartbeats of kubelets. While Cluster API makes a Machine, it writes that many times, and each time the Machine would
// be looked at with its external objects.
func changed() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		version := e.ObjectNew.GetResourceVersion()
		return e.ObjectOld.GetResourceVersion() == version || !reflect.DeepEqual(inVersion(e.ObjectOld, version), e.ObjectNew)
	}}
}

// inVersion returns the object with another resourceVersion. Its parts stay those of the cache, which are often the very same as those of
// the other object, so that comparing them costs little.
func inVersion(object client.Object, version string) client.Object {
	if content, ok := object.(*unstructured.Unstructured); ok {
		copied := content.DeepCopy() // its resourceVersion is within a map
		copied.SetResourceVersion(version)
		return copied
	}
	copied := reflect.New(reflect.TypeOf(object).Elem())
	copied.Elem().Set(reflect.ValueOf(object).Elem())
	same, ok := copied.Interface().(client.Object)
	if !ok {
		return object
	}
	same.SetResourceVersion(version)
	return same
}
