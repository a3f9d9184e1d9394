// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/heirloom-dev/heirloom/pkg/rotation"
)

const (
	// Grace is how late a replica may see a change of the Secret. Informers take seconds; this leaves time for one whose
	// connection hangs until it is noticed.
	Grace = 10 * time.Minute
	// ShortestPeriod leaves, beside Grace, time to tell API servers the new path, also those that are away for a while.
	ShortestPeriod = time.Hour
)

// Rotator makes the keys and replaces them. It is a manager.Runnable that runs on the leader. If there are two leaders for a
// moment, the Secret's version lets one of them win.
type Rotator struct {
	rotation.Shared
	// Period is how long a key is used.
	Period time.Duration
	// Grace is how late a replica may see a change of the Secret.
	Grace time.Duration
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Rotator) NeedLeaderElection() bool { return true }

// Start rotates until ctx is done.
func (r *Rotator) Start(ctx context.Context) error {
	rotation.Run(ctx, rotation.Look, "Failed to rotate the keys of workload clusters' webhooks; the known keys stay in force", r.Rotate)
	return nil
}

// Rotate takes the step that is due, if any, and returns when the next one is.
func (r *Rotator) Rotate(ctx context.Context) (time.Duration, error) {
	const of = "the keys"
	secret, err := r.Read(ctx, of, corev1.SecretTypeOpaque)
	if err != nil {
		return 0, err
	}
	var keys Keys
	if secret.ResourceVersion != "" {
		if keys, err = keysIn(secret); err != nil {
			return 0, err
		}
	}
	keys, changed, again := schedule{period: r.Period, grace: r.Grace}.rotate(keys, r.Now(), randomKey)
	if !changed {
		return again, nil
	}
	keys.put(secret)
	if err := r.Write(ctx, of, secret); err != nil {
		return 0, err
	}
	ctrl.LoggerFrom(ctx).Info("Took a step in the rotation of the keys of workload clusters' webhooks", "Secret", klog.KObj(secret), "again", again)
	return again, nil
}
