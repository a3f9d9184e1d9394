// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"errors"
	"fmt"
	"time"
)

// NotListedError says that the objects of a kind are not known yet, so that no one can tell whether one exists. It does not
// wrap its reason, which is about the list and not about what was read.
type NotListedError struct {
	// Kind is "<kind>.<group>".
	Kind string
	// Since is when the list was first asked for.
	Since time.Time
	// Reason is why the last attempt failed; nil where that is not known. It is for the log only: it is about objects of all
	// namespaces, and readers of a warning or an Event may be allowed to see those of one.
	Reason error
}

func (e *NotListedError) Error() string {
	if e.Reason == nil {
		return e.Kind + " has not been listed yet"
	}
	return fmt.Sprintf("%s cannot be listed since %s; Heirloom's log says why", e.Kind, e.Since.UTC().Format(time.RFC3339))
}

// OnlyNotListed reports whether an error says nothing but that kinds have not been listed: there is nothing to try again before
// they are.
func OnlyNotListed(err error) bool {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return errors.As(err, new(*NotListedError))
	}
	for _, one := range joined.Unwrap() {
		if !OnlyNotListed(one) {
			return false
		}
	}
	return true
}
