// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/version"
	"github.com/heirloom-dev/heirloom/pkg/workload/connect"
)

// run serves until told is done and the shutdown delay is over.
func run(told context.Context, c *config.Config) error {
	ctrl.Log.Info("Starting Heirloom", "version", version.String())
	ctx, stop := drain(told, c.ShutdownDelay)
	defer stop()
	restConfig, err := restConfigOf(c)
	if err != nil {
		return err
	}
	h, err := New(ctx, restConfig, c, Environment{Metrics: ctrlmetrics.Registry, Connect: connect.NewClusterCache})
	if err != nil {
		return err
	}
	served, err := addCertificate(ctx, h.Manager, c)
	if err != nil {
		return err
	}
	if err := h.metrics.Certificate(served.NotAfter); err != nil {
		return err
	}
	filled := &atomic.Bool{}
	err = errors.Join(addServers(ctx, told, c, served, h), addDiagnostics(h.Manager, c, served), addProbes(h.Manager, c, served, filled))
	if err != nil {
		return err
	}
	return start(ctx, h.Manager, filled)
}

// drain returns a context that is done a delay after told: until then, the Service may still send requests to this Pod.
func drain(told context.Context, delay time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(context.WithoutCancel(told))
	unregister := context.AfterFunc(told, func() {
		ctrl.Log.Info("Shutting down; draining requests", "for", delay)
		time.AfterFunc(delay, stop)
	})
	return ctx, func() {
		unregister()
		stop()
	}
}

// start blocks until ctx is done and all runnables have ended, or shutdownTimeout is over. It sets filled once the caches have synced.
// Until then, a manager cannot be stopped: it waits for the caches, forever if a right is missing. A program that is not ready has nothing
// to finish, so start returns at once.
func start(ctx context.Context, mgr ctrl.Manager, filled *atomic.Bool) error {
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	go func() { filled.Store(mgr.GetCache().WaitForCacheSync(ctx)) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		if filled.Load() {
			err = <-ended
		}
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		ctrl.Log.Error(err, "Shutdown timed out; ending anyway") // its context is done, so it writes nothing more
		return nil
	}
	return fmt.Errorf("running: %w", err)
}
