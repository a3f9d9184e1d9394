// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unchanging is a cache as an owners.Chain reads it: every Get of an object returns the same maps and lists. When the test ends, they
// must be as they were: who changes what it has read would change the cache.
type unchanging struct {
	client.Reader

	mu   sync.Mutex
	read map[string]sharedObject
}

// sharedObject is an object that all readers share, and a copy that none of them has.
type sharedObject struct{ shared, before client.Object }

// newUnchanging returns a cache of what a reader reads. What is shared is compared in one cleanup, as a fuzz target may not add any.
func newUnchanging(t testing.TB, of client.Reader) *unchanging {
	t.Helper()
	u := &unchanging{Reader: of, read: map[string]sharedObject{}}
	t.Cleanup(func() {
		for id, object := range u.read {
			NewWithT(t).Expect(object.shared).To(Equal(object.before), "%s has been changed", id)
		}
	})
	return u
}

// Get implements client.Reader.
func (u *unchanging) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	id := fmt.Sprintf("%T %s", into, key)
	u.mu.Lock()
	defer u.mu.Unlock()
	object, ok := u.read[id]
	if !ok {
		if err := u.Reader.Get(ctx, key, into, options...); err != nil {
			return err
		}
		object = sharedObject{shared: copyOf(into), before: copyOf(into)}
		u.read[id] = object
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object.shared).Elem())
	return nil
}

func copyOf(object client.Object) client.Object {
	return object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same type
}
