// SPDX-License-Identifier: Apache-2.0

// Package rotation rotates keys and certificates that replicas share in a Secret. One step is taken at a time. The Secret
// says when, so that any replica can take the next one, and the Secret's version lets one of them win.
package rotation

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

const (
	// Look bounds how long it takes to notice that a Secret was deleted, repaired or changed by another replica.
	Look = time.Minute
	// Retry is how soon a step that failed is tried again.
	Retry = 10 * time.Second
)

// Shared is a Secret that replicas share.
type Shared struct {
	// Live reads from the API server itself, never from a cache: decisions depend on the order of reads and writes.
	Live   client.Reader
	Writer client.Writer
	// Secret is its name.
	Secret types.NamespacedName
	// Now is the clock.
	Now func() time.Time
}

// Read returns the Secret, or a new one of that type, which has no version yet. of says what it holds, as a part of a sentence.
func (s Shared) Read(ctx context.Context, of string, kind corev1.SecretType) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := s.Live.Get(ctx, s.Secret, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting the Secret of %s: %w", of, err)
	}
	if err != nil {
		secret.Namespace, secret.Name, secret.Type = s.Secret.Namespace, s.Secret.Name, kind
		secret.Labels = map[string]string{"app.kubernetes.io/name": "heirloom", "app.kubernetes.io/managed-by": "heirloom"}
	}
	return secret, nil
}

// Write stores the Secret, unless it has changed since it was read.
func (s Shared) Write(ctx context.Context, of string, secret *corev1.Secret) error {
	var err error
	verb := "updating"
	if secret.ResourceVersion != "" {
		err = s.Writer.Update(ctx, secret, client.FieldOwner(managedfields.Manager))
	} else {
		verb, err = "creating", s.Writer.Create(ctx, secret, client.FieldOwner(managedfields.Manager))
	}
	if err != nil {
		return fmt.Errorf("%s the Secret of %s: %w", verb, of, err)
	}
	return nil
}

// Run takes steps until ctx is done, each when it is due. A step returns how long to wait until the next one; look bounds
// that. failed is the log message for a failed step.
func Run(ctx context.Context, look time.Duration, failed string, step func(context.Context) (time.Duration, error)) {
	var again time.Duration
	delay := wait.DelayFunc(func() time.Duration { return wait.Jitter(min(again, look), 0.1) })
	_ = delay.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		var err error
		if again, err = step(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, failed)
			again = Retry
		}
		return false, nil
	})
}

// TimeIn returns the time in an annotation, or zero if it is missing or unreadable.
func TimeIn(secret *corev1.Secret, annotation string) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, secret.Annotations[annotation])
	return t
}

// PutTime writes a time into an annotation. Zero removes it.
func PutTime(secret *corev1.Secret, annotation string, t time.Time) {
	if t.IsZero() {
		delete(secret.Annotations, annotation)
		return
	}
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, annotation, t.UTC().Format(time.RFC3339Nano))
}

// Unknown reports whether a time cannot be used: it is zero, or in the future because a fast clock wrote it.
func Unknown(since, now time.Time) bool {
	return since.IsZero() || since.After(now)
}
