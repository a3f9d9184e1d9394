// SPDX-License-Identifier: Apache-2.0

// Package lockup knows the one fault for which a controller in a test may be left behind.
//
// Up to v0.24, the queue of controller-runtime can lock up for good if it is shut down while it hands out work (its issue
// 3538): it sends to a worker that has gone. The program ends all the same, after its grace period. A test may leave such a
// controller behind, but only if it sees that this is what happened.
package lockup

import (
	"fmt"
	"regexp"
	"runtime/pprof"
	"strings"
)

// sending is the stack of a queue that has locked up.
var sending = regexp.MustCompile(`\[chan send[^\n]*\n[^\n]*/priorityqueue\.[^\n]*\.handleReadyItems`)

// Queues returns how many queues of this process have locked up.
func Queues() (int, error) {
	var stacks strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
		return 0, fmt.Errorf("write the stacks of all goroutines: %w", err)
	}
	return len(sending.FindAllString(stacks.String(), -1)), nil
}
