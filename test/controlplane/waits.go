// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"
	"time"
)

// waitsVariable names the file that collects what a run of tests waited for.
const waitsVariable = "HEIRLOOM_WAITS"

// What the API servers of a run are counted by; hack/test.sh looks for it.
const apiServerStart = "an API server to start"

// Waited notes that this process has waited for something since then. The note is a line in the file that HEIRLOOM_WAITS names,
// so that a run of many processes has one account; without that variable there is none. Usually deferred:
//
//	defer controlplane.Waited("worlds to settle", time.Now())
func Waited(what string, since time.Time) {
	path := os.Getenv(waitsVariable)
	if path == "" {
		return
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(file, "%.1f\t%s\n", time.Since(since).Seconds(), what) // one write: lines of processes do not mix
		if closed := file.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "noting what tests waited for: %v\n", err)
	}
}
