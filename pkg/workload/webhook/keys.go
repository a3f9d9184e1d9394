// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/broadcast"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

const (
	// keyData is the name of the key in the Secret.
	keyData = "key"
	// look is the interval at which the leader checks, in its cache, whether there is a Secret.
	look = 2 * time.Second
)

// KeyOf returns the key in its Secret. The error does not quote the Secret's content.
func KeyOf(secret *corev1.Secret) ([]byte, error) {
	key := secret.Data[keyData]
	if len(key) != KeySize {
		return nil, fmt.Errorf("the Secret %s/%s has no usable key: its %q has %d bytes instead of %d (delete the Secret, and Heirloom creates another)",
			secret.Namespace, secret.Name, keyData, len(key), KeySize)
	}
	return key, nil
}

// Keys has the key that all replicas share in one Secret. As a manager.Runnable on the leader, it creates the key, and another key after
// somebody has deleted the Secret. If there are two leaders for a moment, the first Secret counts.
type Keys struct {
	// Broadcaster sends an event on the leader when there is a new key.
	broadcast.Broadcaster
	// Client reads the Secret from a cache.
	Client client.Client
	Secret types.NamespacedName

	last []byte // the key of the last event
	good atomic.Pointer[[]byte]
}

// Key returns the key for paths, or nil while no key is known: then no path is accepted. After somebody has broken or deleted the Secret,
// the last key stays in force.
func (k *Keys) Key(ctx context.Context) []byte {
	secret := &corev1.Secret{}
	if err := k.Client.Get(ctx, k.Secret, secret); err == nil {
		if key, err := KeyOf(secret); err == nil { // the leader logs the error
			k.good.Store(&key)
		}
	}
	return ptr.Deref(k.good.Load(), nil)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Keys) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (k *Keys) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := k.ensure(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Key of workload clusters' webhooks is missing; retrying")
		}
	}, look)
	return nil
}

func (k *Keys) ensure(ctx context.Context) error {
	secret := &corev1.Secret{}
	if err := k.Client.Get(ctx, k.Secret, secret); err == nil {
		key, err := KeyOf(secret)
		if err == nil && !bytes.Equal(key, k.last) {
			k.last = key
			k.Publish()
		}
		return err
	} else if !apierrors.IsNotFound(err) {
		return fmt.Errorf("getting the Secret of the key: %w", err)
	}
	key := make([]byte, KeySize)
	_, _ = rand.Read(key) // it ends the program rather than return an error
	secret.Namespace, secret.Name, secret.Labels = k.Secret.Namespace, k.Secret.Name, labels()
	secret.Data = map[string][]byte{keyData: key}
	if err := k.Client.Create(ctx, secret, client.FieldOwner(managedfields.Manager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the Secret of the key: %w", err)
	}
	return nil
}
