// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// move says that a field is at one path in v1beta1 and at another in the version in which an object is looked at.
type move struct{ from, to []string }

// moves lists the fields that are elsewhere in an entry of managed fields. known is false where that cannot be told: v1beta1 has
// no path for some fields of v1beta2, and control planes differ between providers.
func moves(here capi.Layout, entry metav1.ManagedFieldsEntry) (all []move, known bool) {
	version := entry.APIVersion[strings.LastIndex(entry.APIVersion, "/")+1:]
	if here.Version == "" || here.Version == version {
		return nil, true
	}
	if version != "v1beta1" || here.Template.ListsMove {
		return nil, false
	}
	there := capi.MachineLayout(version)
	if here.Template.Metadata != nil {
		there = capi.WorkersLayout(version)
	}
	for _, at := range [][2]capi.Paths{{there.Top, here.Top}, {there.Template, here.Template}} {
		for f, from := range at[0].Fields {
			if to := at[1].Fields[f]; from != nil && to != nil {
				all = append(all, move{from, to})
			}
		}
	}
	return all, true
}

// moved returns a set with these fields at their new paths.
func moved(set *fieldpath.Set, moves []move) *fieldpath.Set {
	var from, to []fieldpath.Path
	for _, m := range moves {
		if path := fieldPathOf(m.from); set.Has(path) {
			from, to = append(from, path), append(to, fieldPathOf(m.to))
		}
	}
	if len(from) == 0 {
		return set
	}
	return set.Difference(setOf(from)).Union(setOf(to))
}

// in returns a set as an entry lists it that may be in another version of the API.
func (m managedFields) in(entry metav1.ManagedFieldsEntry, set *fieldpath.Set) *fieldpath.Set {
	back, _ := moves(m.layout, entry)
	for i, m := range back {
		back[i] = move{m.to, m.from}
	}
	return moved(set, back)
}
