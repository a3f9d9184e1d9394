// SPDX-License-Identifier: Apache-2.0

package inherit

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
