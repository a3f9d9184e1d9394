// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand"
	"runtime"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/cluster-api/feature"
)

// The size of a world, and the durations of its parts in virtual time.
const (
	clusters, machines, replicas = 2, 5, 2

	// syncPeriod is longer than a run, so that no resync hides a missing event.
	syncPeriod = 1000 * time.Hour
	// clusterAPISyncPeriod is shorter than Cluster API's default of ten minutes. Cluster API needs a resync after a workload cluster has
	// come back.
	clusterAPISyncPeriod = 3 * time.Minute
	startsFor            = time.Minute
	settlesFor           = 10 * time.Minute
	quietFor             = 5 * time.Minute
)

// Result is the result of a run.
type Result struct {
	// Broken has the violations, Trace has each write.
	Broken, Trace []string
	Steps         int
}

// Run plays the actions in a world whose order the seed decides.
func Run(t *testing.T, seed uint64, actions []Action) Result {
	t.Helper()
	mathrand.Seed(int64(seed))          //nolint:staticcheck // client-go's jitter, which has no other source
	utilrand.Seed(int64(seed))          // generated names
	cryptotest.SetGlobalRandom(t, seed) // keys and certificates
	runtime.GC()                        // hack/sim.sh turns it off during a run
	if err := feature.MutableGates.Set(fmt.Sprintf("MachineTaintPropagation=%t", propagatesTaints(seed))); err != nil {
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
		w := newWorld(seed)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.scheduler.run(ctx)
		}()
		w.play(ctx, actions)
		result = Result{Broken: w.history.broken, Trace: w.history.lines}
		w.end()
		cancel()
		<-ended
		result.Steps = w.scheduler.steps
	})
	return result
}

func newWorld(seed uint64) *World {
	w := &World{
		scheduler: newScheduler(seed), history: newHistory(), wrong: map[string]time.Time{}, booted: map[types.UID]bool{},
		flags: []string{
			"--sync-period=" + syncPeriod.String(), "--leader-elect", "--leader-elect-namespace=" + system, "--workload-admission=webhook", "--workload-webhook-url=" + workloadURL,
			"--workload-webhook-key-secret=" + system + "/heirloom-workload-webhook",
		},
	}
	if !propagatesTaints(seed) {
		w.flags = append(w.flags, "--cluster-api-taint-propagation=disabled") // no webhook of Cluster API refuses the dry run that detects it
	}
	w.scheduler.fault, w.history.takes = w.fault, w.takes
	return w
}

// propagatesTaints reports whether the feature gate of Cluster API is on.
func propagatesTaints(seed uint64) bool { return seed%3 > 0 }

// play starts the world, plays the actions, waits for the end of all faults, and waits until nothing happens any more.
func (w *World) play(ctx context.Context, actions []Action) {
	w.ctx, w.cancel = context.WithCancel(ctx)
	if err := w.begin(w.ctx); err != nil {
		w.history.must(err)
		return
	}
	sleep(w.ctx, startsFor)
	for _, action := range actions {
		sleep(w.ctx, action.After)
		w.history.note("---------- %s", action)
		action.do(w.ctx, w, action)
	}
	w.heals(w.ctx)
	w.history.note("---------- nothing goes wrong any more")
	sleep(w.ctx, settlesFor)
	w.judge()
	w.history.settle()
	sleep(w.ctx, quietFor)
}

// begin starts everything.
func (w *World) begin(ctx context.Context) error {
	if err := w.build(ctx, clusters, machines); err != nil {
		return err
	}
	if err := w.install(ctx); err != nil {
		return err
	}
	for i := range replicas {
		w.replicas = append(w.replicas, &process{name: fmt.Sprintf("%s-%d", heirloomUser, i), note: w.history.note, run: w.runHeirloom, parent: ctx})
	}
	w.capi = &process{name: clusterAPI, note: w.history.note, run: w.runClusterAPI, parent: ctx}
	for _, p := range append(w.replicas, w.capi) {
		p.start()
	}
	w.provider.Go(func() { w.history.must(w.provide(ctx)) })
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

func (h *history) settle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.quiet = true
}

// table returns the actions, one in each line.
func table(actions []Action) string {
	lines := make([]string, 0, len(actions))
	for _, action := range actions {
		lines = append(lines, action.String())
	}
	return strings.Join(lines, "\n")
}
