// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"fmt"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// declares explains an object that inherits nothing: what it declares for others, section by section.
func declares(ref inherit.Ref, sections []inherit.Declaration) *Explanation {
	e := newExplanation(ref.String(), nil)
	e.declares = true
	for _, section := range sections {
		p := place{paths: section.Paths, has: contentOf(section.Content, section.Paths)}
		for i, v := range p.has {
			source := inherit.Sources{All: []inherit.Declaration{section}}.Of(p.named(i))
			entry := p.newEntry(i, v)
			entry.Status, entry.From, entry.Source = Declares, source.Field, structured(source)
			e.Entries = append(e.Entries, entry)
		}
	}
	sortEntries(e.Entries)
	if len(e.Entries) == 0 {
		e.Notes = append(e.Notes, fmt.Sprintf("%s declares nothing that is inherited.", ref))
	}
	return e
}
