// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/rotation"
)

const (
	// Grace is how late a replica may see a change of the Secret. Informers take seconds; this leaves time for one whose
	// connection hangs until it is noticed.
	Grace = 10 * time.Minute
	// ShortestPeriod leaves, beside Grace, time to tell API servers the new path, also those that are away for a while.
	ShortestPeriod = time.Hour
)

// Rotator makes the keys and replaces them. It is a manager.Runnable that runs on the leader. Should there be two for a
// moment, the Secret's version lets one of them win.
type Rotator struct {
	// Live reads the Secret from the API server.
	Live   client.Reader
	Writer client.Writer
	// Secret is where the keys are kept.
	Secret types.NamespacedName
	// Period is how long a key is used.
	Period time.Duration
	// Grace is how late a replica may see a change of the Secret.
	Grace time.Duration
	// Now is the clock.
	Now func() time.Time
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Rotator) NeedLeaderElection() bool { return true }

// Start rotates until ctx is done.
func (r *Rotator) Start(ctx context.Context) error {
	rotation.Loop{
		Step: r.Rotate, Look: rotation.Look,
		Failed: "Failed to see to the keys of workload clusters' webhooks; those known stay in force",
	}.Run(ctx)
	return nil
}

// Rotate takes the step that is due, if any, and returns when the next one is.
func (r *Rotator) Rotate(ctx context.Context) (time.Duration, error) {
	secret := &corev1.Secret{}
	err := r.Live.Get(ctx, r.Secret, secret)
	if apierrors.IsNotFound(err) {
		return r.create(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("getting the Secret of the keys: %w", err)
	}
	keys, err := keysIn(secret)
	if err != nil {
		return 0, err
	}
	keys, changed, again := r.schedule().rotate(keys, r.Now(), randomKey)
	if !changed {
		return again, nil
	}
	keys.put(secret)
	if err := r.Writer.Update(ctx, secret); err != nil {
		return 0, fmt.Errorf("updating the Secret of the keys: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("Took a step in the rotation of the keys of workload clusters' webhooks", "Secret", klog.KObj(secret), "again", again)
	return again, nil
}

func (r *Rotator) create(ctx context.Context) (time.Duration, error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Secret.Namespace, Name: r.Secret.Name},
		Type:       corev1.SecretTypeOpaque,
	}
	keys, _, again := r.schedule().rotate(Keys{}, r.Now(), randomKey)
	keys.put(secret)
	if err := r.Writer.Create(ctx, secret); err != nil {
		return 0, fmt.Errorf("creating the Secret of the keys: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("Made a key for workload clusters' webhooks", "Secret", klog.KObj(secret))
	return again, nil
}

func (r *Rotator) schedule() schedule {
	return schedule{period: r.Period, grace: r.Grace}
}
