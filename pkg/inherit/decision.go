// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"

	"k8s.io/utils/ptr"
)

// Outcome says what happens to an object.
type Outcome int

const (
	// Skipped objects stay as they are; the decision says why.
	Skipped Outcome = iota
	// OwnerNotFound means that the object names an owner that does not exist, or that cannot own it. What the owner declares is not known, so
	// the object stays as it is.
	OwnerNotFound
	// NoOwner means that the object gets only what it declares itself. What an owner propagated before stays until there is an owner again,
	// because a backup loses owner references and they come back later.
	NoOwner
	// Inherits means that of what Heirloom manages, the object gets what is desired and nothing else.
	Inherits
)

// Decision says what happens to an object. The zero value leaves it as it is.
type Decision struct {
	Outcome Outcome
	// Reason says why an object stays as it is.
	Reason Reason
	// Desired is what the rules give to the object, if the outcome is NoOwner or Inherits. Each entry of it is valid; together they may
	// have no room (Fit).
	Desired Object
	// Dropped is what the rules considered and left out.
	Dropped Drops
	// TaintsRefused says that Cluster API refuses every write of an object that still has taints in its spec. Then none of Heirloom's
	// taints stay, even without an owner.
	TaintsRefused bool
}

// Skip leaves an object as it is for this reason.
func Skip(why Reason) Decision {
	return Decision{Outcome: Skipped, Reason: why}
}

// Untouched reports whether the object stays as it is, because it is skipped or its owner is not known.
func (d Decision) Untouched() bool {
	return d.Outcome == Skipped || d.Outcome == OwnerNotFound
}

// Problems says what may not reach the object, and why.
func (d Decision) Problems() error {
	return d.Dropped.Problems()
}

// WhyNot says why no rule brings an entry to the object; the word is empty if one does.
func (d Decision) WhyNot(e Entry) Why {
	if e.Own {
		return d.Dropped.WhyNot(e, d.Desired.Top)
	}
	return d.Dropped.WhyNot(e, ptr.Deref(d.Desired.Template, Content{}))
}

// Keeps reports whether an entry of Heirloom's that is not desired stays in the object. Entries that an owner propagated stay while
// no owner is known. What the object told cluster-autoscaler about itself goes.
func (d Decision) Keeps(e Entry) bool {
	return d.Outcome == NoOwner && !slices.Contains(CapacityAnnotations, e.Name) && (!d.TaintsRefused || e.What != taintKey)
}

// FromOwner reports whether Heirloom can have injected an entry only because an owner declares it. A Machine may also declare its
// taints itself, by annotation.
func (e Entry) FromOwner() bool {
	return !slices.Contains(CapacityAnnotations, e.Name) && (!e.Own || e.What != taintKey)
}
