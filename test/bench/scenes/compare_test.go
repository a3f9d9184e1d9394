// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// measured is what a step took in a world, and what was used until all was calm again.
type measured struct {
	took time.Duration
	used usage
	// delays are those of single Nodes, in seconds.
	delays map[string]float64
}

// measure measures a step: what somebody does in a world who returns when it was done.
func (w *world) measure(ctx context.Context, do func(context.Context) (time.Time, error)) (m measured, err error) {
	before, err := w.usage()
	if err != nil {
		return m, err
	}
	begun := time.Now()
	done, err := do(ctx)
	if err != nil {
		return m, err
	}
	m.took = done.Sub(begun)
	if err := w.settle(ctx); err != nil {
		return m, err
	}
	after, err := w.usage()
	m.used = after.minus(before, w.idles)
	return m, err
}

// both does the same in both worlds at once, where nothing is measured.
func (s *scenes) both(ctx context.Context, do func(ctx context.Context, i int, w *world) error) error {
	both, ctx := errgroup.WithContext(ctx)
	for i, w := range []*world{s.alone, s.with} {
		both.Go(func() error { return do(ctx, i, w) })
	}
	return both.Wait()
}

// inTurn returns what is in both worlds in the order in which it is measured: who comes first changes from round to round.
func inTurn[E any](both []E, round int) []E {
	order := slices.Clone(both)
	if round%2 == 0 {
		slices.Reverse(order)
	}
	return order
}

// rest measures what API servers cost that nobody changes anything in.
func (s *scenes) rest(ctx context.Context) error {
	tell("measuring what idle API servers cost")
	return s.both(ctx, func(ctx context.Context, _ int, w *world) (err error) {
		w.idles, err = w.idle(ctx, 5*time.Second)
		return err
	})
}

// compare adds the metrics of a step: of both worlds, and how many times as much it was with Heirloom.
func (r results) compare(step string, in map[string]measured) {
	for variant, m := range in {
		r.add(m.took.Seconds(), step, variant, "sec")
		r.add(m.used.requests.all, step, variant, "capi-requests")
		r.add(m.used.requests.conflicts, step, variant, "capi-conflicts")
		r.add(m.used.requests.onNodes, step, variant, "capi-conflicts-on-nodes")
		for which, delay := range m.delays {
			r.add(delay, step, variant, which, "sec")
		}
	}
	alone, with := in["alone"], in["with"]
	if len(in) < 2 {
		return // there is nothing to compare it with
	}
	r.ratio(with.took.Seconds(), alone.took.Seconds(), step, "with-sec×alone")
	r.ratio(with.used.server, alone.used.server, step, "with-server-cpu×alone")
	r.ratio(with.used.requests.all, alone.used.requests.all, step, "with-capi-requests×alone")
	r.ratio(with.used.requests.conflicts, alone.used.requests.conflicts, step, "with-capi-conflicts×alone")
	// Of no conflicts there is no multiple.
	r.add(with.used.requests.conflicts-alone.used.requests.conflicts, step, "with-capi-conflicts-more-than-alone")
}

// ratio adds how many times as much as the other one is. Of nothing there is no multiple: where neither is anything, it is once as much.
func (r results) ratio(one, other float64, unit ...string) {
	if other == 0 && one == 0 {
		one, other = 1, 1
	}
	if other != 0 {
		r.add(one/other, unit...)
	}
}
