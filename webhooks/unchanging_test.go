// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unchanging is a cache as ownerchain.Uncopied reads it: every Get of an object returns the same maps and lists. When the test ends, they
// must be as they were: who changes what it has read would change the cache.
type unchanging struct {
	client.Reader
	t testing.TB

	mu   sync.Mutex
	read map[string]client.Object
}

// Get implements client.Reader.
func (u *unchanging) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, copied := into.(runtime.Unstructured); copied {
		return u.Reader.Get(ctx, key, into, options...)
	}
	id := fmt.Sprintf("%T %s", into, key)
	u.mu.Lock()
	defer u.mu.Unlock()
	shared, ok := u.read[id]
	if !ok {
		if err := u.Reader.Get(ctx, key, into, options...); err != nil {
			return err
		}
		shared = u.keep(id, into)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(shared).Elem())
	return nil
}

// keep returns a copy to share, and compares it with another one at the end of the test.
func (u *unchanging) keep(id string, object client.Object) client.Object {
	shared, before := copyOf(object), copyOf(object)
	if u.read == nil {
		u.read = map[string]client.Object{}
	}
	u.read[id] = shared
	u.t.Cleanup(func() {
		NewWithT(u.t).Expect(shared).To(Equal(before), "%s has been changed", id)
	})
	return shared
}

func copyOf(object client.Object) client.Object {
	return object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same type
}
