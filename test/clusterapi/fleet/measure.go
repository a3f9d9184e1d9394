// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/bench/samples"
	"github.com/heirloom-dev/heirloom/test/clusterapi"
)

const (
	// patience limits each wait.
	patience = 10 * time.Minute
	// calm is the time without reconciles after which a fleet counts as settled. Cluster API reconciles an object at most once a second,
	// and no queue shows the objects that it defers until then.
	calm = 2 * time.Second
)

// world is a running fleet.
type world struct {
	*clusterapi.Fleet
	name    string
	options options
	// nodes is the expected number of Nodes.
	nodes int
	// workloads are clients of the Clusters' API servers, by name.
	workloads map[string]client.Client
	// idle is the CPU time that each group of programs takes in a second in which nothing changes.
	idle map[string]float64
}

// measured is a cell of the table.
type measured struct {
	took time.Duration
	// cpu is the CPU time of each group of programs until the fleet was settled again, in seconds; memory is in MiB, at that time.
	cpu, memory map[string]float64
}

func (w *world) measureAll(ctx context.Context, results table) error {
	w.workloads = map[string]client.Client{}
	for _, c := range changes() {
		if c.promised && w.Heirloom == nil {
			continue
		}
		m, err := w.measure(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		say("%s: %s: %.1f s to the last of %d Nodes", w.name, c.name, m.took.Seconds(), w.nodes)
		results.add(c.name, w.name, m)
		if w.idle == nil { // the programs have started
			if err := w.measureIdle(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure makes a change, waits for the last Node, and then until all programs are calm.
func (w *world) measure(ctx context.Context, c change) (m measured, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	before, err := w.usage()
	if err != nil {
		return m, err
	}
	begun := time.Now()
	if err := c.do(ctx, w); err != nil {
		return m, err
	}
	var last error
	err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = w.reached(ctx, c)
		return last == nil, nil
	})
	if err != nil {
		return m, errors.Join(err, last)
	}
	m.took = time.Since(begun)
	if err := w.settle(ctx); err != nil {
		return m, err
	}
	after, err := w.usage()
	m.cpu, m.memory = map[string]float64{}, after.memory
	for group, used := range after.cpu {
		m.cpu[group] = used - before.cpu[group] - w.idle[group]*time.Since(begun).Seconds()
	}
	return m, err
}

// reached returns an error until all Nodes exist, are initialized and have the change.
func (w *world) reached(ctx context.Context, c change) error {
	left := w.nodes
	for i := range w.options.clusters {
		name := fmt.Sprintf("c%d", i+1)
		if w.workloads[name] == nil {
			workload, err := clusterapi.Workload(ctx, w.Client, client.ObjectKey{Namespace: namespace, Name: name})
			if err != nil {
				return err
			}
			w.workloads[name] = workload
		}
		nodes := &corev1.NodeList{}
		if err := w.workloads[name].List(ctx, nodes); err != nil {
			return fmt.Errorf("listing the Nodes of Cluster %s: %w", name, err)
		}
		for _, node := range nodes.Items {
			if clusterapi.Initialized(node) && c.done(node) {
				left--
			}
		}
	}
	if left != 0 {
		return fmt.Errorf("%d of %d Nodes lack the change", left, w.nodes)
	}
	return nil
}

// settle waits until no manager has work left. The in-memory provider always has.
func (w *world) settle(ctx context.Context) error {
	urls := w.Managers.MetricsURLs()
	delete(urls, "in-memory")
	if w.Heirloom != nil {
		urls["heirloom"] = w.MetricsURL
	}
	last, since := -1.0, time.Now()
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		done := 0.0
		for _, url := range urls {
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
		return fmt.Errorf("waiting until all managers are calm: %w", err)
	}
	return nil
}

// usage is the CPU time in seconds and the memory in MiB of each group of programs.
type usage struct{ cpu, memory map[string]float64 }

// The groups of programs.
const (
	server     = "API server and etcd"
	clusterAPI = "Cluster API"
	heirloom   = "Heirloom"
)

func (w *world) usage() (usage, error) {
	groups := map[string][]int{server: w.PIDs()}
	for name, pid := range w.Managers.PIDs() {
		if name != "in-memory" {
			groups[clusterAPI] = append(groups[clusterAPI], pid)
		}
	}
	if w.Heirloom != nil {
		groups[heirloom] = []int{w.Heirloom.PID()}
	}
	u := usage{cpu: map[string]float64{}, memory: map[string]float64{}}
	for group, pids := range groups {
		for _, pid := range pids {
			process, err := procfs.NewProc(pid)
			if err != nil {
				return u, fmt.Errorf("looking for a process: %w", err)
			}
			stat, err := process.Stat()
			if err != nil {
				return u, fmt.Errorf("asking what a process has used: %w", err)
			}
			u.cpu[group] += stat.CPUTime()
			u.memory[group] += float64(stat.ResidentMemory()) / (1 << 20)
		}
	}
	return u, nil
}

// measureIdle measures the CPU time of the programs while nothing changes.
func (w *world) measureIdle(ctx context.Context) error {
	before, err := w.usage()
	if err != nil {
		return err
	}
	const during = 5 * time.Second
	select {
	case <-time.After(during):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := w.usage()
	w.idle = map[string]float64{}
	for group, used := range after.cpu {
		w.idle[group] = (used - before.cpu[group]) / during.Seconds()
	}
	return err
}
