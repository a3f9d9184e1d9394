// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"os"
)

// countStart adds a line to the file that HEIRLOOM_API_SERVERS names, so that a run of many processes knows how many API servers it has
// started; without that variable nothing is counted.
func countStart() error {
	path := os.Getenv("HEIRLOOM_API_SERVERS")
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("counting API servers: %w", err)
	}
	_, err = fmt.Fprintln(file, os.Getpid()) // one write: lines of processes do not mix
	return errors.Join(err, file.Close())
}
