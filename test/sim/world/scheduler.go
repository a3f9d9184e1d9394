// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

// scheduler is the only point of ordering: every step waits for its turn, and once all programs wait, the seed chooses the next turn. The
// decisions about a step depend on the step's name and on the number of steps of this name, not on the steps before. So two runs of a seed
// that differ somewhere, because an action was dropped or Go chose another order, are alike everywhere else.
type scheduler struct {
	seed uint64
	// fault decides the fault of a step: none, an error, or a delay.
	fault func(server string, step apiserver.Step, dice *rand.Rand) (delay time.Duration, err error)

	mu      sync.Mutex
	counts  map[string]uint64
	waiting []*turn
	arrived chan struct{}
	ended   bool // whether there are no more turns
	// steps counts all turns.
	steps int
}

// collectEvery is the number of steps between two collections of garbage.
const collectEvery = 1500

// turn is a step that waits.
type turn struct {
	server string
	step   apiserver.Step
	ctx    context.Context
	from   time.Time
	dice   *rand.Rand // nil until the seed has decided
	lot    uint64     // the lowest lot has the next turn
	may    chan error
}

func newScheduler(seed uint64) *scheduler {
	return &scheduler{seed: seed, counts: map[string]uint64{}, arrived: make(chan struct{}, 1)}
}

// turns returns an API server's Options.Turn.
func (s *scheduler) turns(server string) func(context.Context, apiserver.Step) error {
	return func(ctx context.Context, step apiserver.Step) error {
		t := &turn{server: server, step: step, ctx: ctx, may: make(chan error, 1)}
		s.mu.Lock()
		if s.ended {
			s.mu.Unlock()
			return errUnreachable
		}
		s.waiting = append(s.waiting, t)
		s.mu.Unlock()
		select {
		case s.arrived <- struct{}{}:
		default:
		}
		select {
		case err := <-t.may:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// run gives turns until ctx is done.
func (s *scheduler) run(ctx context.Context) {
	defer s.end()
	for ctx.Err() == nil {
		synctest.Wait()
		next, pause := s.next(time.Now())
		if next == nil {
			s.rest(ctx, pause)
			continue
		}
		if s.steps++; s.steps%collectEvery == 0 {
			runtime.GC() // while nothing else runs; hack/sim.sh turns the collector off, because it follows the clock of the machine
		}
		next.may <- nil
	}
}

// end refuses all waiting steps, and all later steps: programs that have ended may still report their last actions.
func (s *scheduler) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, t := range s.waiting {
		t.may <- errUnreachable
	}
	s.waiting = nil
}

// rest waits until a step wants a turn, or until a delay is over.
func (s *scheduler) rest(ctx context.Context, pause time.Duration) {
	var over <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-s.arrived:
	case <-over:
	case <-ctx.Done():
	}
}

// next takes the turn that the seed chooses, or returns how long all steps have to wait.
func (s *scheduler) next(now time.Time) (next *turn, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(t *turn) bool { return t.ctx.Err() != nil })
	slices.SortStableFunc(s.waiting, compare)
	for _, t := range s.waiting {
		if t.dice != nil {
			continue
		}
		t.dice = s.throw(fmt.Sprint(t.server, t.step))
		t.lot = t.dice.Uint64()
		delay, err := s.fault(t.server, t.step, t.dice)
		if err != nil {
			t.may <- err
		}
		t.from = now.Add(delay)
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(t *turn) bool { return len(t.may) > 0 })
	var ready []*turn
	for _, t := range s.waiting {
		if wait := t.from.Sub(now); wait > 0 {
			if pause == 0 || wait < pause {
				pause = wait
			}
			continue
		}
		ready = append(ready, t)
	}
	if len(ready) == 0 {
		return nil, pause
	}
	next = slices.MinFunc(ready, func(a, b *turn) int { return cmp.Compare(a.lot, b.lot) })
	s.waiting = slices.DeleteFunc(s.waiting, func(t *turn) bool { return t == next })
	return next, 0
}

// throw returns the dice for the next step of this name. Called under the lock.
func (s *scheduler) throw(name string) *rand.Rand {
	s.counts[name]++
	sum := fnv.New64a()
	_, _ = fmt.Fprint(sum, name, " ", s.counts[name])
	return rand.New(rand.NewPCG(s.seed, sum.Sum64()))
}

// choose returns a number below n for the next question of this name.
func (s *scheduler) choose(name string, n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.throw(name).IntN(n)
}

// compare orders turns by all properties of their steps.
func compare(a, b *turn) int {
	return cmp.Or(
		cmp.Compare(a.server, b.server), cmp.Compare(a.step.Phase, b.step.Phase), cmp.Compare(a.step.User, b.step.User),
		cmp.Compare(a.step.Path, b.step.Path), cmp.Compare(a.step.Method, b.step.Method), cmp.Compare(a.step.Sequence, b.step.Sequence),
	)
}
