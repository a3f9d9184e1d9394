// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"slices"
)

// Exit codes of all commands, as those of kubectl diff.
const (
	// ExitOK means that the question was answered, and all is as it should be.
	ExitOK = 0
	// ExitFound means that the question was answered, and something is not as it should be: there is a difference, a finding or a
	// failed check, or something that an object inherits is not there.
	ExitFound = 1
	// ExitFailed means that the question could not be answered.
	ExitFailed = 2
)

// ErrFound ends a command with ExitFound. The command has already said what it found.
var ErrFound = errors.New("something is not as it should be")

// ExitCode returns the exit code for a command's error. One that was found and one that failed, joined, is one that failed.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return ExitOK
	case slices.ContainsFunc(joined(err), func(one error) bool { return !errors.Is(one, ErrFound) }):
		return ExitFailed
	}
	return ExitFound
}
