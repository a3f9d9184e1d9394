// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"sync"
	"testing"

	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// planes are the API servers of all tests. One that a test has done with is wiped, and another test gets it.
var planes controlplane.Pool

var writeIdentityOnce = sync.OnceValue(func() error { return writeIdentity("api-server") })

// borrow takes an API server out of the pool. All can do for any test, as a management cluster or as a workload cluster: they prove to
// webhooks that ask who they are, and serve policies also in the version that older ones have alone.
func borrow(ctx context.Context, options controlplane.Options) (*controlplane.Lent, error) {
	if err := writeIdentityOnce(); err != nil {
		return nil, err
	}
	options.APIServerArgs = map[string][]string{
		"admission-control-config-file": {identityFile("api-server.yaml")},
		"runtime-config":                {admissionregistrationv1beta1.SchemeGroupVersion.String() + "=true"},
	}
	options, err := stage.ControlPlaneOptions(ctx, options)
	if err != nil {
		return nil, err
	}
	return planes.Lend(ctx, options)
}

// How many tests at a time have a management cluster of their own, and workload clusters: one each, which may have two. The others wait
// for an API server that there is already, instead of two processors' time for the start of another.
var (
	atHome = make(chan struct{}, 1)
	away   = make(chan struct{}, 1)
	// travellers are the tests that have workload clusters, by name.
	travellers sync.Map
)

// lend takes an API server for a management cluster out of the pool until the test has ended.
func lend(t *testing.T, options controlplane.Options) *controlplane.Lent {
	t.Helper()
	atHome <- struct{}{}
	t.Cleanup(func() { <-atHome })
	return lendNow(t, options)
}

// lendAbroad does so for a workload cluster. Who needs both takes the management cluster first.
func lendAbroad(t *testing.T) *controlplane.Lent {
	t.Helper()
	if _, has := travellers.LoadOrStore(t.Name(), true); !has {
		away <- struct{}{}
		t.Cleanup(func() {
			travellers.Delete(t.Name())
			<-away
		})
	}
	return lendNow(t, controlplane.ForWorkload(controlplane.Options{}))
}

func lendNow(t *testing.T, options controlplane.Options) *controlplane.Lent {
	t.Helper()
	lent, err := borrow(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
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
