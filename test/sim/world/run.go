// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand"
	"runtime"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/cluster-api/feature"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// The size of a world, and the durations of its parts in virtual time.
const (
	clusters, machines, replicas = 2, 4, 2
	// fewest and most limit the number of actions.
	fewest, most = 40, 100

	// syncPeriod is longer than a run, resyncPeriod is not.
	syncPeriod, resyncPeriod = 1000 * time.Hour, 4 * time.Minute
	// clusterAPISyncPeriod is shorter than Cluster API's default of ten minutes. Cluster API needs a resync after a workload cluster has
	// come back.
	clusterAPISyncPeriod = 3 * time.Minute
	startsFor            = time.Minute
	// loadedFor is longer than the run that has left the objects of an older version.
	loadedFor = 30 * time.Minute
	// quietFor is longer than each resync: whatever is not written in this time is not written any more. A world that is not quiet after
	// settlesIn never is.
	quietFor, settlesIn = 5 * time.Minute, 30 * time.Minute
)

// Result is the result of a run.
type Result struct {
	// Broken has the violations, Trace has each write.
	Broken, Trace []string
	Steps         int
}

// Run plays a schedule.
func Run(t *testing.T, s Schedule) Result {
	t.Helper()
	mathrand.Seed(int64(s.Seed))          //nolint:staticcheck // client-go's jitter, which has no other source
	utilrand.Seed(int64(s.Seed))          // generated names
	cryptotest.SetGlobalRandom(t, s.Seed) // keys and certificates
	runtime.GC()                          // see scheduler.run
	if err := feature.MutableGates.Set(fmt.Sprintf("ClusterTopology=true,MachineTaintPropagation=%t", s.Options.TypedTaints == propagatesTaints)); err != nil {
		t.Fatal(err)
	}
	// Both run programs, which follow the clock of the machine.
	_, err := managementCRDs()
	_, chart := configurations()
	if err := errors.Join(err, chart); err != nil {
		t.Fatal(err)
	}
	var result Result
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(s)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.scheduler.run(ctx)
		}()
		w.play(ctx, s.Actions)
		result = Result{Broken: w.history.broken, Trace: w.history.lines}
		w.end()
		cancel()
		<-ended
		result.Steps = w.scheduler.steps
	})
	return result
}

func newWorld(s Schedule) *World {
	w := &World{
		scheduler: newScheduler(s.Seed), options: s.Options, history: newHistory(), wrong: map[string]time.Time{}, booted: map[types.UID]bool{},
		flags: []string{
			"--leader-elect", "--leader-elect-namespace=" + system, "--workload-admission=webhook", "--workload-webhook-url=" + workloadURL,
			// Leases are renewed more rarely than in reality: each renewal is a step.
			"--leader-elect-lease-duration=45s", "--leader-elect-renew-deadline=30s", "--leader-elect-retry-period=10s",
			"--workload-webhook-key-secret=" + system + "/heirloom-workload-webhook",
		},
	}
	period := syncPeriod
	if s.Options.Resync {
		period = resyncPeriod
	}
	w.flags = append(w.flags, "--sync-period="+period.String())
	if s.Options.TypedTaints == ignoresTaints {
		w.flags = append(w.flags, "--cluster-api-taint-propagation=disabled") // no webhook of Cluster API refuses the dry run that detects it
	}
	if s.Options.Labeled {
		w.flags = append(w.flags, "--enrollment=labeled")
		w.history.policy = inherit.Policy{OnlyLabeled: true}
	}
	if s.Options.Facts {
		w.flags = append(w.flags, factFlag)
	}
	if w.history.budgets = s.Options.Budgets; !s.Options.Budgets {
		w.flags = append(w.flags, "--no-execute=pace")
	}
	if w.history.waves = s.Options.Waves; s.Options.Waves {
		w.flags = append(w.flags, "--no-execute-clusters=1", "--no-execute-soak=20s")
	} else {
		w.flags = append(w.flags, "--no-execute-clusters=100%", "--no-execute-soak=0s")
	}
	w.scheduler.fault, w.history.takes = w.fault, w.takes
	return w
}

// play starts the world, plays the actions, and settles. Then operators drop all declarations, and nothing may be left.
func (w *World) play(ctx context.Context, actions []Action) {
	w.ctx, w.cancel = context.WithCancel(ctx)
	if err := w.begin(w.ctx); err != nil {
		w.history.must(err)
		return
	}
	sleep(w.ctx, startsFor)
	for _, action := range actions {
		sleep(w.ctx, action.After.Duration)
		w.history.note("---------- %s", action)
		kinds()[action.What].do(w.ctx, w, action)
	}
	settle(w.ctx, w, Action{})
	w.history.note("---------- operators drop all declarations")
	w.dropAll(w.ctx)
	w.settles(w.ctx)
	w.judge()
}

// settle waits for the end of all faults, and until nothing happens any more, and compares the state with the declarations.
func settle(ctx context.Context, w *World, _ Action) {
	w.heals(ctx)
	w.enforces(ctx)
	w.history.note("---------- nothing goes wrong any more")
	w.settles(ctx)
	w.judge()
}

// settles waits until nothing has been written for a while.
func (w *World) settles(ctx context.Context) {
	for begun, writes := time.Now(), -1; ctx.Err() == nil; sleep(ctx, quietFor) {
		now := w.history.writes()
		if now == writes {
			return
		}
		if writes = now; time.Since(begun) > settlesIn {
			w.history.violated("writes do not end: %s", w.history.last())
			return
		}
	}
}

// begin starts everything.
func (w *World) begin(ctx context.Context) error {
	if err := w.build(ctx); err != nil {
		return err
	}
	if err := w.install(ctx); err != nil {
		return err
	}
	if w.options.Older {
		sleep(ctx, loadedFor)
	}
	for i := range replicas {
		w.replicas = append(w.replicas, &process{name: fmt.Sprintf("%s-%d", heirloomUser, i), note: w.history.note, run: w.runHeirloom, parent: ctx})
	}
	w.capi = &process{name: clusterAPI, note: w.history.note, run: w.runClusterAPI, parent: ctx}
	for _, p := range append(w.replicas, w.capi) {
		p.start()
	}
	w.provider.Go(func() { w.history.must(w.provide(ctx)) })
	if w.options.Topologies {
		w.provider.Go(func() { w.history.must(w.provideTopologies(ctx)) })
	}
	if w.options.ControlPlanes || w.options.Topologies {
		w.provider.Go(func() { w.history.must(w.provideControlPlanes(ctx)) })
	}
	if w.options.Pools {
		w.provider.Go(func() { w.history.must(w.providePools(ctx)) })
	}
	if w.options.Budgets {
		w.provider.Go(func() { w.history.must(w.runPods(ctx)) })
	}
	return nil
}

// end stops everything.
func (w *World) end() {
	w.cancel()
	for _, p := range append(w.replicas, w.capi) {
		if p != nil {
			p.stop()
		}
	}
	w.actions.Wait()
	w.provider.Wait()
}
