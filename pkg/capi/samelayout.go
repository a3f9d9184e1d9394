// SPDX-License-Identifier: Apache-2.0

package capi

import "slices"

// Equal reports whether two layouts are the same.
func (l Layout) Equal(other Layout) bool {
	return l.Version == other.Version && l.Top.equal(other.Top) && l.Template.equal(other.Template)
}

func (p Paths) equal(other Paths) bool {
	for f := range p.Fields {
		if !samePath(p.Fields[f], other.Fields[f]) {
			return false
		}
	}
	return p.Durations == other.Durations && p.ListsMove == other.ListsMove && samePath(p.Metadata, other.Metadata) && samePath(p.Taints, other.Taints)
}

// samePath reports whether two paths are the same. One that is nil leads nowhere.
func samePath(a, b []string) bool {
	return (a == nil) == (b == nil) && slices.Equal(a, b)
}
