// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// String tells a story so that it can be read.
func (s story) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "a %s", s.kind)
	for _, step := range s.steps {
		fmt.Fprintf(&text, "\n  %s %s in %s (admitted: %v, looped: %v): %s", step.by, step.does, step.version, step.admitted, step.looped, asText(step.has))
	}
	return text.String()
}

func asText(has declaration) string {
	raw, err := json.Marshal(tree(has))
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// tree is an object as JSON has it, without what is not declared.
func tree(has declaration) map[string]any {
	raw, err := json.Marshal(has)
	if err != nil {
		return nil
	}
	var whole map[string]any
	if json.Unmarshal(raw, &whole) != nil {
		return nil
	}
	delete(whole, "Layout")
	dropNothing(whole)
	return whole
}

func dropNothing(m map[string]any) {
	maps.DeleteFunc(m, func(name string, value any) bool {
		if below, ok := value.(map[string]any); ok {
			dropNothing(below)
			return len(below) == 0 && name != "Template"
		}
		if elements, ok := value.([]any); ok {
			return !slices.ContainsFunc(elements, func(element any) bool { return element != nil })
		}
		return value == nil || value == false || value == ""
	})
}

// shrunk returns a story that fails as well and of which nothing can be left out.
func (s story) shrunk(fails func(story) bool) story {
	for again := true; again; {
		again = false
		for _, smaller := range s.smaller() {
			if fails(smaller) {
				s, again = smaller, true
				break
			}
		}
	}
	return s
}

// smaller lists the same story without one of its steps, or with a step that writes or declares less.
func (s story) smaller() []story {
	var all []story
	for i := range s.steps {
		all = append(all, story{s.kind, slices.Delete(slices.Clone(s.steps), i, i+1)})
	}
	for i, whole := range s.steps {
		with := func(change func(*step)) {
			less := whole
			change(&less)
			steps := slices.Clone(s.steps)
			steps[i] = less
			all = append(all, story{s.kind, steps})
		}
		if whole.admitted {
			with(func(less *step) { less.admitted = false })
		}
		if whole.looped {
			with(func(less *step) { less.looped = false })
		}
		for n := range cuts(tree(whole.has), -1) {
			content := tree(whole.has)
			cuts(content, n)
			raw, err := json.Marshal(content)
			var has declaration
			if err == nil && json.Unmarshal(raw, &has) == nil {
				with(func(less *step) { less.has = has })
			}
		}
	}
	return all
}

// cuts counts what can be left out of a tree, and leaves out the nth.
func cuts(value any, nth int) int {
	count := 0
	m, _ := value.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		switch key {
		case "Orphan", "Claims": // an object that is none inherits more than nothing, and an orphan nothing that would be owned
			continue
		case "Template":
			count += cuts(m[key], nth-count)
			continue
		}
		if count++; count-1 == nth {
			delete(m, key)
			continue
		}
		if elements, ok := m[key].([]any); ok {
			for i, element := range elements {
				if element == nil {
					continue
				}
				if count++; count-1 == nth {
					if elements[i] = nil; key != "Seconds" { // which has a place for each field
						m[key] = slices.Delete(elements, i, i+1)
					}
					break
				}
			}
			continue
		}
		count += cuts(m[key], nth-count)
	}
	return count
}
