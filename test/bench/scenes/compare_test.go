// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"time"
)

// measured is what a step took in a world, and what was used until all was calm again.
type measured struct {
	took time.Duration
	used usage
}

// compare adds the metrics of a step: of both worlds, and how many times as much it was with Heirloom.
func (r results) compare(step string, alone, with measured) {
	for variant, m := range map[string]measured{"alone": alone, "with": with} {
		r.add(m.took.Seconds(), step, variant, "sec")
		r.add(m.used.server, step, variant, "server-cpu-sec")
		r.add(m.used.requests.all, step, variant, "capi-requests")
		r.add(m.used.requests.writes, step, variant, "capi-writes")
		r.add(m.used.requests.conflicts, step, variant, "capi-conflicts")
		for program, cpu := range m.used.programs {
			r.add(cpu, step, variant, program, "cpu-sec")
		}
		for kind, written := range m.used.written {
			if written > 0 {
				r.add(written, step, variant, "heirloom-writes", kind)
			}
		}
	}
	r.ratio(with.took.Seconds(), alone.took.Seconds(), step, "with-sec×alone")
	r.ratio(with.used.server, alone.used.server, step, "with-server-cpu×alone")
	r.ratio(with.used.programs["capi"], alone.used.programs["capi"], step, "with-capi-cpu×alone")
	r.ratio(with.used.requests.all, alone.used.requests.all, step, "with-capi-requests×alone")
	r.ratio(with.used.requests.writes, alone.used.requests.writes, step, "with-capi-writes×alone")
	r.ratio(with.used.requests.conflicts, alone.used.requests.conflicts, step, "with-capi-conflicts×alone")
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
