// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"testing"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// planes are the API servers of all tests. One that a test has done with is wiped, and another test gets it.
var planes controlplane.Pool

// lend takes an API server out of the pool until the test has ended.
func lend(t *testing.T, options controlplane.Options) *controlplane.Lent {
	t.Helper()
	lent := take(t, options)
	t.Cleanup(func() {
		if t.Failed() { // nobody knows what goes on in it
			if err := lent.Stop(); err != nil {
				t.Error(err)
			}
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := lent.GiveBack(ctx); err != nil {
			t.Error(err)
		}
	})
	return lent
}

// lendLast takes an API server that is of no use to others afterwards: it is stopped with the test.
func lendLast(t *testing.T, options controlplane.Options) *controlplane.Lent {
	t.Helper()
	lent := take(t, options)
	t.Cleanup(func() {
		if err := lent.Stop(); err != nil {
			t.Error(err)
		}
	})
	return lent
}

func take(t *testing.T, options controlplane.Options) *controlplane.Lent {
	t.Helper()
	options, err := stage.ControlPlaneOptions(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	lent, err := planes.Lend(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return lent
}
