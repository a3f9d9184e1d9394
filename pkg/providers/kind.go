// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
)

// kind is what is known about the informer of a kind.
type kind struct {
	gvk    schema.GroupVersionKind
	since  time.Time
	synced toolscache.DoneChecker

	mu sync.Mutex
	// reason is why it is not listed; nil where that is not known, and once it has been said that it is listed.
	reason error
}

// String returns "<kind>.<group>".
func (k *kind) String() string {
	return k.gvk.GroupKind().String()
}

func (k *kind) listed() bool {
	return toolscache.IsDone(k.synced)
}

// wait waits until the kind is listed, but not beyond its grace.
func (k *kind) wait(ctx context.Context) error {
	if k.listed() {
		return nil
	}
	ctx, cancel := context.WithDeadline(ctx, k.since.Add(grace))
	defer cancel()
	select {
	case <-k.synced.Done():
		return nil
	case <-ctx.Done():
		k.mu.Lock()
		defer k.mu.Unlock()
		return &NotListedError{Kind: k.String(), Since: k.since, Reason: k.reason}
	}
}

// because notes why the kind is not listed. What ends a watch later does no harm: what is known stays in force.
func (k *kind) because(err error) {
	if k.listed() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reason == nil {
		k.log().Error(err, "A provider's kind cannot be listed: its own objects wait, and nothing else does")
	}
	k.reason = err
}

// settled reports whether there is nothing to find out: the kind is listed, or has its grace still.
func (k *kind) settled() bool {
	if !k.listed() {
		return time.Since(k.since) < grace
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reason != nil {
		k.log().Info("The provider's kind has been listed", "after", time.Since(k.since).Round(time.Second).String())
		k.reason = nil
	}
	return true
}

func (k *kind) log() logr.Logger {
	return ctrl.Log.WithValues("kind", k.String())
}
