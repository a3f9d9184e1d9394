// SPDX-License-Identifier: Apache-2.0

package inherit

import "slices"

// Outcome says what is to become of an object.
type Outcome int

const (
	// Skipped objects stay as they are; the decision says why.
	Skipped Outcome = iota
	// OwnerNotFound is that of an object which names an owner that does not exist, or that is no owner for it. What the owner
	// declares is not known, so the object stays as it is.
	OwnerNotFound
	// NoOwner is that of an object which gets only what it declares itself. What an owner propagated to it before stays until
	// there is an owner again: owner references are lost in a backup and come back later.
	NoOwner
	// Inherits is that of an object which should have what is desired, and of Heirloom's nothing else.
	Inherits
)

// Decision is the answer to one question: what is to become of this object? The zero value leaves it as it is.
type Decision struct {
	Outcome Outcome
	// Reason says why an object stays as it is.
	Reason Reason
	// Desired is what the object should have by the rules, where the outcome is NoOwner or Inherits.
	Desired Object
	// TaintsRefused says that Cluster API refuses every write of an object that still has taints in its spec. Of Heirloom's none
	// stay then, not even without an owner.
	TaintsRefused bool
	// Problems says what may not reach the object, and why.
	Problems error
}

// Skip leaves an object as it is for this reason.
func Skip(why Reason) Decision {
	return Decision{Outcome: Skipped, Reason: why}
}

// Untouched reports whether the object stays as it is, because it is skipped or its owner is not known.
func (d Decision) Untouched() bool {
	return d.Outcome == Skipped || d.Outcome == OwnerNotFound
}

// Keeps reports whether an entry that is Heirloom's, and not desired, stays in the object. That is what an owner brought, while
// none is known. What the object told cluster-autoscaler of itself goes.
func (d Decision) Keeps(e Entry) bool {
	return d.Outcome == NoOwner && !capacity(e) && (!d.TaintsRefused || e.What != taintKey)
}

// FromOwner reports whether Heirloom can have brought an entry only because an owner declares it. A Machine may declare its
// taints itself, by annotation.
func (e Entry) FromOwner() bool {
	return !capacity(e) && (!e.Own || e.What != taintKey)
}

func capacity(e Entry) bool {
	return slices.Contains(CapacityAnnotations(), e.Name)
}
