// SPDX-License-Identifier: Apache-2.0

// Package lockup detects the only fault for which a test may leave a controller behind.
//
// Up to v0.24, the queue of controller-runtime can lock up for good if it is shut down while it hands out work (its issue 3538): it sends
// to a worker that has ended. The program still ends, after its grace period. A test may leave the controller behind only if it detects
// this fault.
package lockup

import (
	"fmt"
	"regexp"
	"runtime/pprof"
	"strings"
)

// sending matches the stack of a queue that has locked up.
var sending = regexp.MustCompile(`\[chan send[^\n]*\n[^\n]*/priorityqueue\.[^\n]*\.handleReadyItems`)

// Queues returns the number of queues in this process that have locked up.
func Queues() (int, error) {
	var stacks strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
		return 0, fmt.Errorf("write the stacks of all goroutines: %w", err)
	}
	return len(sending.FindAllString(stacks.String(), -1)), nil
}
