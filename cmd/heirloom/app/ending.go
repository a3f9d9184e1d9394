// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// loopTimeout is how long the loop may take to end, and, before it, the runnables beside it. Together they leave the webhook
// servers a quarter of shutdownTimeout, which is as long as a request about a Node may take.
const loopTimeout = 3 * time.Second

// orderly is a manager that does not let the loop use up the time of the webhooks.
//
// A manager stops one group after the other, all within shutdownTimeout: what works beside the loop, the loop, the caches,
// and the webhook servers last. So a controller that does not end would make the program break off requests and end with
// an error. It happens under load: up to v0.24, the queue of controller-runtime can lock up for good if it is shut down
// while it hands out work (its issue 3538).
//
// A runnable that has not ended in time is left behind instead, and the log says so. That is no failure of the program. Its
// context is done, so it sends nothing more to an API server, and the next leader does the rest of its work. A request that
// is not answered in time is a failure, and remains one.
type orderly struct {
	ctrl.Manager
}

// Add implements manager.Manager.
func (m orderly) Add(runnable manager.Runnable) error {
	switch runnable.(type) {
	case webhook.Server, interface{ GetCache() cache.Cache }: // the manager knows them by their types, and stops them last
		return m.Manager.Add(runnable)
	default:
		return m.Manager.Add(bounded{Runnable: runnable, log: m.GetLogger()})
	}
}

// bounded is a runnable that has at most loopTimeout to end.
type bounded struct {
	manager.Runnable
	log logr.Logger
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (b bounded) NeedLeaderElection() bool {
	elected, ok := b.Runnable.(manager.LeaderElectionRunnable)
	return !ok || elected.NeedLeaderElection()
}

// Start implements manager.Runnable.
func (b bounded) Start(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- b.Runnable.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(loopTimeout):
		b.logger().Info("Left behind, because it has not ended in time", "after", loopTimeout)
		return nil
	}
}

// logger says what it is: a controller has a logger with its name.
func (b bounded) logger() logr.Logger {
	if named, ok := b.Runnable.(interface{ GetLogger() logr.Logger }); ok {
		return named.GetLogger()
	}
	return b.log.WithValues("runnable", fmt.Sprintf("%T", b.Runnable))
}
