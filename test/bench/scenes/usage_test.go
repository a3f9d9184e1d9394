// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/heirloom-dev/heirloom/test/bench/samples"
)

// patience is how long anything may take.
const patience = 10 * time.Minute

// calm is for how long nobody may have done anything where everything has settled. Cluster API looks at an object once a second at
// most, and what it puts off until then is in no queue that could be asked for.
const calm = 2 * time.Second

// usage is what has been used of a world since its beginning.
type usage struct {
	at       time.Time
	requests requests
	// server is CPU time of the management cluster's API server and etcd, in seconds.
	server float64
}

// usage returns what has been used until now.
func (w *world) usage() (u usage, err error) {
	u.at = time.Now()
	for _, pid := range w.PIDs() {
		used, err := cpuTime(pid)
		if err != nil {
			return u, err
		}
		u.server += used
	}
	u.requests, err = w.requests()
	return u, err
}

// minus is what has been used since then. What an API server costs that nobody changes anything in, in CPU time per time, is left out:
// otherwise it would speak for what is quicker.
func (u usage) minus(earlier usage, idle float64) usage {
	return usage{
		at: u.at, requests: u.requests.minus(earlier.requests), server: u.server - earlier.server - idle*u.at.Sub(earlier.at).Seconds(),
	}
}

func cpuTime(pid int) (float64, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("looking for a process: %w", err)
	}
	stat, err := process.Stat()
	if err != nil {
		return 0, fmt.Errorf("asking what a process has used: %w", err)
	}
	return stat.CPUTime(), nil
}

// programs are where the metrics of those are that work in a world.
func (w *world) programs() map[string]string {
	urls := map[string]string{"capi": w.managers.MetricsURLs()[0]}
	if w.heirloom {
		urls["heirloom"] = w.MetricsURL
	}
	return urls
}

// idle measures what the management cluster's API server and etcd use while nobody changes anything.
func (w *world) idle(ctx context.Context, during time.Duration) (float64, error) {
	before, err := w.usage()
	if err != nil {
		return 0, err
	}
	select {
	case <-time.After(during):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	after, err := w.usage()
	return after.minus(before, 0).server / after.at.Sub(before.at).Seconds(), err
}

// settle waits until nobody has anything left to do.
func (w *world) settle(ctx context.Context) error {
	return w.settled(ctx, w.programs())
}

// prepare waits until Heirloom has nothing left to do. Cluster API looks for each Node that is not there again and again.
func (w *world) prepare(ctx context.Context) error {
	programs := w.programs()
	delete(programs, "capi")
	return w.settled(ctx, programs)
}

// settled waits until these programs are calm. It asks them and not the API servers, whose work is measured.
func (w *world) settled(ctx context.Context, programs map[string]string) error {
	last, since := -1.0, time.Now()
	err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
		done := 0.0
		for _, url := range programs {
			now, err := samples.Of(ctx, url)
			if err != nil {
				return false, err
			}
			// It looks at something again and again, whatever happens.
			of := func(metric string) float64 { return now[metric] - now[metric+" clustercache"] }
			done += of("controller_runtime_reconcile_total")
			if of("workqueue_depth")+of("controller_runtime_active_workers") > 0 {
				since = time.Now()
			}
		}
		if done != last {
			last, since = done, time.Now()
		}
		return time.Since(since) >= calm, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until world %s has settled: %w", w.name, err)
	}
	return nil
}
