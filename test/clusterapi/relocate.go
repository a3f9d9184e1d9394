// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"

	"k8s.io/client-go/rest"
)

// Detach stops the provider's controllers and nothing else: its machines run on.
func (i *Infrastructure) Detach() error {
	i.cancel()
	return <-i.ended
}

// Attach starts the controllers anew, for that management cluster. The machines that run belong to whatever FakeMachines of
// their names come there, by clusterctl move or from a backup.
func (i *Infrastructure) Attach(ctx context.Context, management *rest.Config) error {
	i.mu.Lock() // no reconciler gets past this before the machines are known again
	defer i.mu.Unlock()
	running := i.kubelets
	err := i.Start(ctx, management)
	i.kubelets = running
	return err
}
