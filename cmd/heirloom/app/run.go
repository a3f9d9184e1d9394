// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/version"
	"github.com/heirloom-dev/heirloom/pkg/workload/connect"
)

// reserve is memory that is never touched, so that it takes none of the machine's; growth is the percentage by which the heap, with
// the reserve, grows before garbage is collected. Together they leave some 40 MiB of garbage to a small heap, so that a replica does
// not collect it for every few requests (BenchmarkWebhookCPU), and no more to a large one (BenchmarkResidentMemory).
const reserve, growth = 256 << 20, 13

// run serves until a while after told is done.
func run(told context.Context, c *config.Config) error {
	defer runtime.KeepAlive(reserved())
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

// reserved makes the reserve. A limit of the memory counts it, so it is small where the limit is. It consists of pieces, because Go
// writes zeros to all of an object of which it has used any memory before.
func reserved() [][]byte {
	const piece = 1 << 20
	pieces := make([][]byte, min(reserve, debug.SetMemoryLimit(-1)/4)/piece)
	for i := range pieces {
		pieces[i] = make([]byte, piece)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(growth)
	}
	return pieces
}

// drain returns a context that is done a while after told: until then the Service may lead to this Pod.
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

// start blocks until ctx is done and everything has ended, or shutdownTimeout is over. It sets filled once the caches are filled. Until
// then, a manager cannot be stopped: it keeps waiting for them, forever if a right is missing. A program that is not ready has nothing to
// finish, so it just ends.
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
