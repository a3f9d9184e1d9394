// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Dropped says in one word why a declared entry is not inherited. The empty word means that a rule brings it.
//
// The rules leave keys out by the same functions that return these words, so that a rule and its explanation agree.
type Dropped string

// Why a rule does not bring an entry.
const (
	// DropNever: no rule propagates the key.
	DropNever Dropped = "NeverInherited"
	// DropBookkeeping: the key describes the object that carries it.
	DropBookkeeping Dropped = "Bookkeeping"
	// DropSelected: a selector of the object or its owner uses the label.
	DropSelected Dropped = "UsedBySelector"
	// DropIdentifies: Cluster API's controllers set this label themselves, to find an object or its family.
	DropIdentifies Dropped = "SetByClusterAPI"
	// DropOutside: no rule and no regex brings the key to a Node.
	DropOutside Dropped = "OutsideSyncedDomains"
	// DropReserved: no one may declare a taint or a label with this key.
	DropReserved Dropped = "Reserved"
	// DropInvalid: an API server would refuse it, or there is no room for it.
	DropInvalid Dropped = "Invalid"
	// DropRestricted: a kubelet may not write the label on its own Node.
	DropRestricted Dropped = "RestrictedUntilPrivilegedWrite"
	// DropUnproven: only a name or an address says that the Node is the Machine.
	DropUnproven Dropped = "MatchedByAddressOnly"
	// DropTaints: the object cannot have typed taints, or Cluster API would refuse them there.
	DropTaints Dropped = "TaintsNotSupported"
	// DropPaced: Cluster API would add the typed taint to a Node in use at once, and without a limit.
	DropPaced Dropped = "StaysAnnotation"
	// DropOnce: a Node gets the taint when it registers, and this one has been initialized.
	DropOnce Dropped = "OnlyAtRegistration"
	// DropElsewhere: the rule brings nothing from where the key is.
	DropElsewhere Dropped = "NotPropagatedFromHere"
)

// Why an object that is not under a rule now does not get an entry.
const (
	DropPaused        Dropped = "Paused"
	DropOptedOut      Dropped = "OptedOut"
	DropDeleting      Dropped = "Deleting"
	DropWatchFilter   Dropped = "WatchFilter"
	DropOwnerNotFound Dropped = "OwnerNotFound"
	DropNoMatch       Dropped = "NoMatch"
)

// Dropped returns the reason in one word.
func (r Reason) Dropped() Dropped {
	switch {
	case r.OptedOut():
		return DropOptedOut
	case r == IsPaused, r == ClusterIsPaused:
		return DropPaused
	case r == IsDeleted:
		return DropDeleting
	case strings.HasPrefix(string(r), notFiltered):
		return DropWatchFilter
	case r == IsNoMachine, r == NotOfManagementCluster, r == NotOfMachine:
		return DropNoMatch
	case r == OwnerIsNotFound, r == ClusterDoesNotExist:
		return DropOwnerNotFound
	}
	return DropElsewhere
}

// droppedKey says why no rule brings a label or an annotation, wherever it is declared.
func droppedKey(key string) Dropped {
	if never(key) {
		return DropNever
	}
	return ""
}

// WhyNotOwn says why no rule brings a label or an annotation from the metadata of an owner itself, wherever it goes.
func WhyNotOwn(key string) Dropped {
	switch {
	case never(key):
		return DropNever
	case bookkeeping(key):
		return DropBookkeeping
	}
	return ""
}

// droppedSection is droppedKey for a label of a topology or a ClusterClass.
func droppedSection(key string) Dropped {
	switch {
	case never(key):
		return DropNever
	case identifies(key), managed(key):
		return DropIdentifies
	}
	return ""
}

// droppedLabel is droppedKey for a label of a template whose owner, or whose Machines' owner, selects by these keys.
func droppedLabel(key string, selected sets.Set[string]) Dropped {
	if never(key) {
		return DropNever
	}
	return droppedSelected(key, selected)
}

func droppedSelected(key string, selected sets.Set[string]) Dropped {
	switch {
	case identifies(key):
		return DropIdentifies
	case selected.Has(key):
		return DropSelected
	}
	return ""
}

// selectedBy returns the keys that selectors use.
func selectedBy(selectors ...metav1.LabelSelector) sets.Set[string] {
	selected := sets.New[string]()
	for _, selector := range selectors {
		for key := range selector.MatchLabels {
			selected.Insert(key)
		}
		for _, requirement := range selector.MatchExpressions {
			selected.Insert(requirement.Key)
		}
	}
	return selected
}

// droppedByRegex says why a label does not reach a Node even if a regex selects it.
func droppedByRegex(key string) Dropped {
	if marks(key) {
		return DropReserved
	}
	return WhyNotOwn(key)
}

// droppedTyped says why a typed taint "<key>:<effect>" of an owner is not inherited as such.
func (p Policy) droppedTyped(role taint.Role, declared []clusterv1.MachineTaint, id string) Dropped {
	if p.ClusterAPITaints == PropagationDisabled {
		return DropTaints
	}
	return droppedTaint(role, declared, id)
}

// droppedTaint says why no Machine can have any of the taints "<key>:<effect>".
func droppedTaint(role taint.Role, declared []clusterv1.MachineTaint, id string) Dropped {
	why := DropElsewhere
	for _, t := range declared {
		if taint.MachineID(t).String() != id {
			continue
		}
		unusable := taint.Unusable(role, t)
		switch {
		case unusable == nil:
			return ""
		case unusable.Reserved:
			why = DropReserved
		case why == DropElsewhere:
			why = DropInvalid
		}
	}
	return why
}

// unusableIn says why an error that lists taints names this one; it may be the reason for another.
func unusableIn(problems error, id string) Dropped {
	for _, problem := range Problems(problems) {
		var unusable *taint.UnusableError
		if errors.As(problem, &unusable) && unusable.ID.String() == id {
			if unusable.Reserved {
				return DropReserved
			}
			return DropInvalid
		}
	}
	return DropElsewhere
}

// TypedTaint reports whether the content has the taint "<key>:<effect>" as such, not by annotation.
func (c Content) TypedTaint(id string) bool {
	_, ok := findTaint(c.Taints, id)
	return ok
}
