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

// patience is the time limit of each wait.
const patience = 10 * time.Minute

// calm is the time without reconciles after which a world counts as settled. Cluster API reconciles an object at most once a second, and
// no queue shows the objects that it defers until then.
const calm = 2 * time.Second

// usage is the usage of a world since its start.
type usage struct {
	at       time.Time
	requests requests
	// server is CPU time of the management cluster's API server and etcd, in seconds.
	server float64
}

// usage returns the current usage.
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

// minus returns the usage since an earlier time, without the CPU time that idle API servers take anyway: otherwise the ratio would favour
// the faster world. idle is in CPU time per time.
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

// programs returns the metrics URLs of the programs in a world.
func (w *world) programs() map[string]string {
	urls := map[string]string{"capi": w.managers.MetricsURLs()["core"]}
	if w.heirloom {
		urls["heirloom"] = w.MetricsURL
	}
	return urls
}

// idle measures the CPU time of the management cluster's API server and etcd while nobody changes anything.
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

// settle waits until no program has work left.
func (w *world) settle(ctx context.Context) error {
	return w.settled(ctx, w.programs())
}

// prepare waits until Heirloom has no work left. Cluster API never rests before all Nodes exist.
func (w *world) prepare(ctx context.Context) error {
	programs := w.programs()
	delete(programs, "capi")
	return w.settled(ctx, programs)
}

// settled waits until these programs are calm. It does not ask the API servers, whose work is measured.
func (w *world) settled(ctx context.Context, programs map[string]string) error {
	last, since := -1.0, time.Now()
	err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
		done := 0.0
		for _, url := range programs {
			now, err := samples.Of(ctx, url)
			if err != nil {
				return false, err
			}
			// The clustercache reconciles periodically.
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
