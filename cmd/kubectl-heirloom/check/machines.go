// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// machines finds those that inherit nothing. Machines that are being deleted are none of the operator's business.
func machines(_ context.Context, w *world) Result {
	all, err := w.fleet()
	if err != nil {
		return unknown("The Clusters could not be read: %v", err)
	}
	total, untouched := 0, 0
	var details []string
	for _, c := range all.clusters {
		byReason := map[string][]string{}
		c.each(func(m *snapshot.Member) {
			if m.Kind != "Machine" {
				return
			}
			total++
			if reason := untouchedFor(m); reason != "" {
				untouched++
				byReason[reason] = append(byReason[reason], m.Object.GetName())
			}
		})
		for _, reason := range slices.Sorted(maps.Keys(byReason)) {
			details = append(details, fmt.Sprintf("%s: %s: %s", c, reason, some(byReason[reason])))
		}
	}
	details = slices.Concat(first(details), first(all.unread()))
	switch {
	case untouched > 0:
		return warning("%d of %s %s nothing.", untouched, cli.Count(total, "Machine"), verb(untouched, "inherits", "inherit")).with(details...).
			next("If that is not meant: unpause, or remove the label %s.", inherit.IgnoreLabel)
	case len(details) > 0:
		return unknown("Not all Machines could be read.").with(details...)
	case total == 0:
		return skipped("There is no Machine.")
	}
	return ok("%s, none paused or opted out.", cli.Count(total, "Machine"))
}

// untouchedFor says why a Machine inherits nothing, or "".
func untouchedFor(m *snapshot.Member) string {
	switch {
	case m.Err != nil:
		return m.Err.Error()
	case m.Decided.Untouched() && m.Decided.Reason != inherit.IsDeleted:
		return string(m.Decided.Reason)
	}
	return ""
}
