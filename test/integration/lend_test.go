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

// planes are the API servers of all tests. When a test ends, its API server is wiped, and another test gets it.
var planes controlplane.Pool

var writeIdentityOnce = sync.OnceValue(func() error { return writeIdentity("api-server") })

// borrow takes an API server out of the pool. Every API server suits every test, as a management cluster or as a workload cluster: it
// presents a client certificate to webhooks that request it, and serves policies also in v1beta1, the only version of older releases.
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

// At a time, only one test has a management cluster of its own, and only one test has workload clusters, at most two. The other tests
// wait for a running API server: the start of another would use both processors.
var (
	atHome, away sync.Mutex
	// travellers are the names of the tests that have workload clusters.
	travellers sync.Map
)

// lend takes an API server for a management cluster out of the pool until the test has ended.
func lend(t *testing.T, options controlplane.Options) *controlplane.Lent {
	t.Helper()
	atHome.Lock()
	t.Cleanup(atHome.Unlock)
	return lendNow(t, options)
}

// lendAbroad takes an API server for a workload cluster out of the pool. A test that needs both takes the management cluster first.
func lendAbroad(t *testing.T) *controlplane.Lent {
	t.Helper()
	if _, has := travellers.LoadOrStore(t.Name(), true); !has {
		away.Lock()
		t.Cleanup(func() {
			travellers.Delete(t.Name())
			away.Unlock()
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
		var err error
		if t.Failed() { // its state is unknown
			err = lent.Stop()
		} else {
			err = lent.GiveBack(context.WithoutCancel(t.Context()))
		}
		if err != nil {
			t.Error(err)
		}
	})
	return lent
}
