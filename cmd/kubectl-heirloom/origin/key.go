// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Only keeps the entries of one key and reports whether there are any. A taint's key may have its effect or not, and a field the name
// of any version of the API.
func (e *Explanation) Only(key string) bool {
	e.Entries = slices.DeleteFunc(e.Entries, func(entry Entry) bool { return !entry.is(key) })
	return len(e.Entries) > 0
}

func (e *Entry) is(key string) bool {
	if e.Key == key {
		return true
	}
	switch e.Kind {
	case Taint, TemplateTaint:
		return strings.HasPrefix(e.Key, key+":")
	case Field, TemplateField:
		field := inherit.FieldOf(key)
		return strings.HasPrefix(e.Key, key+"[") || strings.HasSuffix(e.Key, "["+key+"]") ||
			field != inherit.ReadinessGates && field == inherit.FieldOf(e.Key)
	}
	return false
}

// Nowhere says that neither the object nor one above it has a key.
func (e *Explanation) Nowhere(key string) string {
	if e.declares {
		return fmt.Sprintf("%s does not declare %q.", e.Object, key)
	}
	if len(e.owners) == 0 {
		return fmt.Sprintf("%s has no %q and no owner that declares it.", e.Object, key)
	}
	return fmt.Sprintf("No owner of %s declares %q, and no one has set it there. The owners are: %s.", e.Object, key, strings.Join(e.owners, ", "))
}

// AllAbsent reports whether there are only entries that the object does not inherit.
func (e *Explanation) AllAbsent() bool {
	return !slices.ContainsFunc(e.Entries, func(entry Entry) bool { return entry.Status != Absent })
}
