// SPDX-License-Identifier: Apache-2.0

// Package rotation is what the rotations of all things have in common that replicas share in a Secret: keys, certificates.
// One step is taken at a time. When it was taken stands in the Secret, so that any replica can take the next one, and the
// Secret's version lets one of them win.
package rotation

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// Look bounds how long it takes to notice that a Secret was deleted, repaired or changed by another replica.
	Look = time.Minute
	// Retry is how soon a step that failed is tried again.
	Retry = 10 * time.Second
)

// Loop takes steps, each when it is due.
type Loop struct {
	// Step takes the step that is due, if any, and returns how long to wait until the next one is.
	Step func(context.Context) (time.Duration, error)
	// Look bounds that wait.
	Look time.Duration
	// Failed is what the log says when a step has failed.
	Failed string
}

// Run takes steps until ctx is done.
func (l Loop) Run(ctx context.Context) {
	for {
		again, err := l.Step(ctx)
		if err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, l.Failed)
			again = Retry
		}
		timer := time.NewTimer(wait.Jitter(min(again, l.Look), 0.1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// TimeIn returns the time in an annotation, or zero where there is none that can be read.
func TimeIn(object metav1.Object, annotation string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, object.GetAnnotations()[annotation])
	if err != nil {
		return time.Time{}
	}
	return t
}

// PutTime writes a time into an annotation. Zero removes it.
func PutTime(object metav1.Object, annotation string, t time.Time) {
	annotations := object.GetAnnotations()
	if t.IsZero() {
		delete(annotations, annotation)
		return
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotation] = t.UTC().Format(time.RFC3339Nano)
	object.SetAnnotations(annotations)
}

// Unknown reports whether a time cannot be counted from: there is none, or a clock that was ahead has written it.
func Unknown(since, now time.Time) bool {
	return since.IsZero() || since.After(now)
}
