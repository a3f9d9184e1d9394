// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// mortal is a fleet whose Machines are created, get Nodes and are deleted.
type mortal struct {
	*fleet
	machines cache.Store
}

// living has the mortal fleets of both worlds.
type living struct {
	*scenes
	size   int
	fleets []*mortal
	round  int
}

// benchmarkLife measures the times until Machines exist, until the Nodes that join have their inherited entries, and until all Machines
// are gone.
func benchmarkLife(b *testing.B, s *scenes, sizes []int) {
	b.Helper()
	for _, size := range sizes {
		l := &living{scenes: s, size: size, fleets: make([]*mortal, 2)}
		err := s.both(b.Context(), func(ctx context.Context, i int, w *world) error {
			f, err := w.addFleet(ctx, fmt.Sprintf("living-%d", size))
			if err != nil {
				return err
			}
			machines, err := f.watchMachines(b.Context())
			l.fleets[i] = &mortal{f, machines}
			return err
		})
		if err == nil {
			err = s.rest(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("machines=%d", size), l.benchmark)
	}
}

func (l *living) benchmark(b *testing.B) {
	r := results{}
	for range b.N {
		l.round++
		steps := map[string]map[string]measured{"created": {}, "joined": {}, "removed": {}}
		for _, f := range inTurn(l.fleets, l.round) {
			if err := l.live(b.Context(), f, steps); err != nil {
				b.Fatalf("world %s: %v", f.name, err)
			}
		}
		for step, in := range steps {
			r.compare(step, in)
		}
	}
	r.report(b)
}

// live creates all Machines of a fleet, registers their Nodes and deletes the Machines.
func (l *living) live(ctx context.Context, f *mortal, steps map[string]map[string]measured) (err error) {
	note := func(step string, m measured) {
		tell("life, %d Machines, round %d, %s, %s: %s", l.size, l.round, step, f.name, m.took.Round(time.Millisecond))
		steps[step][f.name] = m
	}
	created, err := f.measure(ctx, f.scaleTo(l.size))
	if err != nil {
		return err
	}
	note("created", created)
	names, err := f.awaitMachines(ctx, "exist", l.size, func(*clusterv1.Machine) bool { return true })
	if err != nil {
		return err
	}
	if err := f.provision(ctx, names); err != nil {
		return err
	}
	if err := f.prepare(ctx); err != nil {
		return err
	}
	if err := l.first(ctx, f); err != nil {
		return err
	}
	delays := map[string]float64{}
	joined, err := f.measure(ctx, func(ctx context.Context) (time.Time, error) { return f.join(ctx, delays, names) })
	joined.delays = delays
	if err != nil {
		return err
	}
	note("joined", joined)
	removed, err := f.measure(ctx, f.scaleTo(0))
	note("removed", removed)
	return err
}

// first registers one Node alone, like the first Node of a new cluster. When an API server first evaluates a policy for a Node, it parses
// the schema of Nodes, and each concurrent request parses the schema again.
func (l *living) first(ctx context.Context, f *mortal) error {
	if l.round > 1 {
		return nil
	}
	return f.register(ctx, f.md.Name+"-first")
}

// scaleTo scales the MachineDeployment and returns when it has count Machines.
func (f *mortal) scaleTo(count int) func(context.Context) (time.Time, error) {
	return func(ctx context.Context) (time.Time, error) {
		if err := f.scale(ctx, count); err != nil {
			return time.Time{}, err
		}
		err := wait.PollUntilContextTimeout(ctx, resolution, patience, true, func(context.Context) (bool, error) {
			return len(f.machines.ListKeys()) == count, nil
		})
		if err != nil {
			err = fmt.Errorf("%d Machines are there instead of %d: %w", len(f.machines.ListKeys()), count, err)
		}
		return time.Now(), err
	}
}
