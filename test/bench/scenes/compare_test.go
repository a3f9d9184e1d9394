// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// measured has the duration of a step in a world, and the usage until all programs were calm again.
type measured struct {
	took time.Duration
	used usage
	// delays are the delays of single Nodes, in seconds.
	delays map[string]float64
}

// measure measures a step in a world. The function returns the time at which the step was done.
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

// both runs a function in both worlds at the same time, where nothing is measured.
func (s *scenes) both(ctx context.Context, do func(ctx context.Context, i int, w *world) error) error {
	both, ctx := errgroup.WithContext(ctx)
	for i, w := range []*world{s.alone, s.with} {
		both.Go(func() error { return do(ctx, i, w) })
	}
	return both.Wait()
}

// inTurn returns the items of both worlds in the order of their measurement, which changes from round to round.
func inTurn[E any](both []E, round int) []E {
	order := slices.Clone(both)
	if round%2 == 0 {
		slices.Reverse(order)
	}
	return order
}

// rest measures the usage of idle API servers.
func (s *scenes) rest(ctx context.Context) error {
	tell("measuring what idle API servers cost")
	return s.both(ctx, func(ctx context.Context, _ int, w *world) (err error) {
		w.idles, err = w.idle(ctx, 5*time.Second)
		return err
	})
}

// compare adds the metrics of a step: of both worlds, and with Heirloom as a multiple of without.
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
		return // there is nothing to compare
	}
	r.ratio(with.took.Seconds(), alone.took.Seconds(), step, "with-sec×alone")
	r.ratio(with.used.server, alone.used.server, step, "with-server-cpu×alone")
	r.ratio(with.used.requests.all, alone.used.requests.all, step, "with-capi-requests×alone")
	r.ratio(with.used.requests.conflicts, alone.used.requests.conflicts, step, "with-capi-conflicts×alone")
	// There is no multiple of zero conflicts.
	r.add(with.used.requests.conflicts-alone.used.requests.conflicts, step, "with-capi-conflicts-more-than-alone")
}

// ratio adds one as a multiple of other. There is no multiple of zero; if both are zero, the ratio is one.
func (r results) ratio(one, other float64, unit ...string) {
	if other == 0 && one == 0 {
		one, other = 1, 1
	}
	if other != 0 {
		r.add(one/other, unit...)
	}
}
