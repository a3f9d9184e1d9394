// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/rotation"
)

// fieldManager owns the CA bundles that are published.
const fieldManager = client.FieldOwner("heirloom")

// of is what the Secret holds.
const of = "the serving certificate"

// soon is how long to wait after another replica was faster, or when there is more to do.
const soon = 200 * time.Millisecond

// Keeper keeps Heirloom's own CA and serving certificate. It is a manager.Runnable that runs on every replica.
type Keeper struct {
	Schedule
	// Shared is the Secret with the CA and the certificate.
	rotation.Shared

	// Configuration is the name of the webhook configurations, one of either kind, in which the CA bundle is published.
	Configuration string
	// Published, unless nil, is called when a new CA bundle is published.
	Published func()

	serving   atomic.Pointer[tls.Certificate]
	published []byte
}

// Source is what servers get their certificate from.
func (k *Keeper) Source() Source {
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		certificate := k.serving.Load()
		if certificate == nil {
			return nil, errNone
		}
		return certificate, nil
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Keeper) NeedLeaderElection() bool { return false }

// Start keeps the certificate until ctx is done.
func (k *Keeper) Start(ctx context.Context) error {
	rotation.Run(ctx, k.look(), "Failed to maintain the serving certificate; the known one stays in force", k.Keep)
	return nil
}

// Keep loads the certificate, publishes the CA bundle and takes the steps that are due. It returns when to look again.
func (k *Keeper) Keep(ctx context.Context) (time.Duration, error) {
	again, err := k.keep(ctx)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		ctrl.LoggerFrom(ctx).V(1).Info("Another replica was faster to update the serving certificate", "reason", err.Error())
		return soon, nil
	}
	return again, err
}

func (k *Keeper) keep(ctx context.Context) (time.Duration, error) {
	// The configurations are read before the Secret. So this never publishes an older bundle than another replica has
	// published meanwhile: that would be a conflict.
	installed, err := read(ctx, k.Live, k.Configuration)
	if err != nil {
		return 0, err
	}
	secret, err := k.Read(ctx, of, corev1.SecretTypeTLS)
	if err != nil {
		return 0, err
	}
	st, err := stateIn(secret)
	if err != nil {
		return 0, err
	}
	k.serve(ctx, st)
	changed, publishErr := k.publish(ctx, &st, installed)
	if apierrors.IsConflict(publishErr) {
		return 0, publishErr
	}
	// While the bundle cannot be published, the certificate is renewed all the same.
	st, advanced, err := k.advance(st, k.Now())
	if err != nil || !advanced && !changed {
		return k.look(), errors.Join(publishErr, err)
	}
	if err := k.write(ctx, secret, st); err != nil {
		return 0, err
	}
	k.serve(ctx, st)
	return soon, publishErr
}

// publish makes all CAs known to API servers. It records in the state since when, and returns whether the state changed.
func (k *Keeper) publish(ctx context.Context, st *state, installed []client.Object) (bool, error) {
	if st.current == nil {
		return false, nil
	}
	bundle, err := st.bundle()
	if err != nil {
		return false, err
	}
	changed := false
	for _, configuration := range installed {
		did, err := publishIn(ctx, k.Writer, configuration, bundle)
		if err != nil {
			st.nextPublished = time.Time{}
			return false, err
		}
		changed = changed || did
	}
	if changed {
		ctrl.LoggerFrom(ctx).Info("Published the CA bundle", "configuration", k.Configuration, "certificates", len(st.cas()))
	}
	if !bytes.Equal(k.published, bundle) {
		k.published = bundle
		if k.Published != nil {
			k.Published()
		}
	}
	if now := k.Now(); st.next != nil && (changed || rotation.Unknown(st.nextPublished, now)) {
		st.nextPublished = now
		return true, nil
	}
	return false, nil
}

// write stores the state, unless the Secret has changed since it was read.
func (k *Keeper) write(ctx context.Context, secret *corev1.Secret, st state) error {
	if err := st.put(secret); err != nil {
		return err
	}
	if err := k.Write(ctx, of, secret); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Took a step in the rotation of the serving certificate", "Secret", klog.KObj(secret),
		"certificateUntil", st.leaf.Leaf.NotAfter, "caUntil", st.current.Leaf.NotAfter, "cas", len(st.cas()))
	return nil
}

// serve serves the certificate of the state.
func (k *Keeper) serve(ctx context.Context, st state) {
	if st.leaf == nil {
		return
	}
	before := k.serving.Swap(st.leaf)
	if before == nil || !before.Leaf.Equal(st.leaf.Leaf) {
		ctrl.LoggerFrom(ctx).Info("Serving another certificate", "until", st.leaf.Leaf.NotAfter, "serial", st.leaf.Leaf.SerialNumber.String())
	}
}
