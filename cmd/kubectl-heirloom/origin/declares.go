// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"fmt"
	"slices"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// declares explains an object that inherits nothing: what it declares for others, section by section. listKey is the field that tells
// sections apart.
func declares(ref inherit.Ref, listKey string, sections []inherit.Declaration) (*Explanation, error) {
	owners, err := readManagers(ref.Object.GetManagedFields())
	if err != nil {
		return nil, err
	}
	e := newExplanation(ref.String(), nil)
	e.declares = true
	for _, section := range sections {
		p := place{listKey: listKey, paths: section.Paths, has: contentOf(section.Content, section.Paths)}
		for i, v := range p.has {
			source := inherit.Sources{All: []inherit.Declaration{section}}.Of(p.named(i))
			entry := p.newEntry(i, v)
			entry.Status, entry.From, entry.Source = Declares, source.Field, structured(source)
			entry.Managers = owners.of(p.fieldPath(i))
			entry.OwnedByHeirloom = slices.Contains(entry.Managers, managedfields.Manager)
			e.Entries = append(e.Entries, entry)
		}
	}
	sortEntries(e.Entries)
	if len(e.Entries) == 0 {
		e.Notes = append(e.Notes, fmt.Sprintf("%s declares nothing that is inherited.", ref))
	}
	return e, nil
}
