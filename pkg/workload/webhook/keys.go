// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/broadcast"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

const (
	// keyData is the key's name in the Secret.
	keyData = "key"
	// look is how often the leader looks, in its cache, whether there is a Secret.
	look = 10 * time.Second
)

// Store holds the key in the memory of one replica. The zero value has none, and accepts no path.
type Store struct {
	// Broadcaster sends an event whenever there is another key.
	broadcast.Broadcaster

	key atomic.Pointer[[]byte]
}

// Set takes the key from its Secret, whose versions must come in order. After an error, which does not quote the Secret's content,
// the known key stays in force.
func (s *Store) Set(secret *corev1.Secret) error {
	key := slices.Clone(secret.Data[keyData])
	if len(key) != KeySize {
		return fmt.Errorf("the Secret %s/%s has no usable key: its %q has %d bytes instead of %d (delete the Secret, and another is made)",
			secret.Namespace, secret.Name, keyData, len(key), KeySize)
	}
	if before := s.key.Swap(&key); before == nil || !bytes.Equal(*before, key) {
		s.Publish()
	}
	return nil
}

// Key returns the key that paths are made with, or nil while there is none.
func (s *Store) Key() []byte {
	if key := s.key.Load(); key != nil {
		return *key
	}
	return nil
}

// Maker makes the key, and another key when somebody has deleted the Secret. It is a manager.Runnable that runs on the leader. If
// there are two leaders for a moment, the first Secret counts.
type Maker struct {
	// Client reads the Secret from a cache.
	Client client.Client
	Secret types.NamespacedName
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Maker) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (m Maker) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := m.ensure(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to make the key of workload clusters' webhooks; a known key stays in force")
		}
	}, look)
	return nil
}

func (m Maker) ensure(ctx context.Context) error {
	secret := &corev1.Secret{}
	if err := m.Client.Get(ctx, m.Secret, secret); err == nil {
		return nil
	} else if !apierrors.IsNotFound(err) {
		return fmt.Errorf("getting the Secret of the key: %w", err)
	}
	key := make([]byte, KeySize)
	_, _ = rand.Read(key) // it ends the program rather than return an error
	secret.Namespace, secret.Name, secret.Labels = m.Secret.Namespace, m.Secret.Name, labels()
	secret.Data = map[string][]byte{keyData: key}
	if err := m.Client.Create(ctx, secret, client.FieldOwner(managedfields.Manager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the Secret of the key: %w", err)
	}
	return nil
}
