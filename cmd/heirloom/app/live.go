// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// liveReads is how many objects a second, and at once, the webhooks may read from the API server. Owners are read once for many
// requests, and each Node costs a read of its own Machine.
const liveReads = 1000

// newReader returns what the webhooks read owners with, if the cache does not have them or may be behind. It shares no rate limit
// with the loop, so that neither waits for the other, and has one limit for all kinds.
func newReader(mgr ctrl.Manager) (client.Reader, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(liveReads, liveReads)
	reader, err := client.New(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return nil, fmt.Errorf("creating the webhooks' client: %w", err)
	}
	return owners.NewLive(reader), nil
}
