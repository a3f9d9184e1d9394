// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"regexp"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// WhyNotNode says why rules 11, 12 and 13 do not bring an entry that a Node's source has or declares, in a write by this writer.
// A caller that paces taints asks Evicting, too.
func (p Policy) WhyNotNode(from NodeSource, current NodeState, writer Writer, e Entry) Dropped {
	var why Dropped
	switch e.What {
	case labelKey:
		why = p.whyNotNodeLabel(from, writer, e.Name)
	case annotationKey:
		why = p.whyNotNodeAnnotation(from, e.Name)
	case taintKey:
		return from.whyNotTaint(writer.believed(current), e.Name)
	default:
		return DropElsewhere
	}
	if why != "" {
		return why
	}
	result, _ := p.Node(from, current, writer)
	value := result.values()
	if _, there := value(e.What, e.Name); !there {
		return DropInvalid // a Node has no room for all of them
	}
	return ""
}

func (p Policy) whyNotNodeLabel(from NodeSource, writer Writer, key string) Dropped {
	value, declared := from.Labels[key]
	withheld := !declared && from.matched != "" && restricted(key)
	if !declared && !withheld {
		return DropElsewhere
	}
	if !nodeLabel(key) {
		if why := unsynced(droppedByRegex(key), p.AdditionalLabels, key); why != "" {
			return why
		}
	}
	switch {
	case withheld:
		return DropUnproven
	case len(refused(labelKey, key, value)) > 0:
		return DropInvalid
	case writer == Kubelet && restricted(key):
		return DropRestricted
	}
	return ""
}

func (p Policy) whyNotNodeAnnotation(from NodeSource, key string) Dropped {
	value, declared := from.Annotations[key]
	if !declared {
		return DropElsewhere
	}
	if !nodeAnnotation(key) {
		if why := unsynced(WhyNotOwn(key), p.AdditionalAnnotations, key); why != "" {
			return why
		}
	}
	if len(refused(annotationKey, key, value)) > 0 {
		return DropInvalid
	}
	return ""
}

// unsynced says why no regex brings a key to a Node that the rules do not bring.
func unsynced(why Dropped, regexes []*regexp.Regexp, key string) Dropped {
	if why != "" || matchesAny(regexes, key) {
		return why
	}
	return DropOutside
}

func (s NodeSource) whyNotTaint(current NodeState, id string) Dropped {
	t, declared := findTaint(s.taints.all(), id)
	switch {
	case !declared:
		return unusableIn(s.problems, id)
	case taint.Initialize(t) && current.initialized():
		return DropOnce
	}
	return ""
}

// Waits reports whether a Node waits for its turn to get the taint "<key>:<effect>", while these are held.
func (s NodeSource) Waits(id string, held []taint.ID, current NodeState) bool {
	for _, waiting := range held {
		if waiting.String() == id {
			return true
		}
	}
	t, declared := findTaint(s.taints.all(), id)
	return declared && taint.Initialize(t) && (has(current.Labels, InitializationLabel) || s.holdsInitialization(held, current))
}

// Taint returns the value of the taint "<key>:<effect>" that the source declares for its Node.
func (s NodeSource) Taint(id string) (value string, declared bool) {
	t, declared := findTaint(s.taints.all(), id)
	return t.Value, declared
}
