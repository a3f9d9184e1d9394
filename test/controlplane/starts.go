// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"os"
)

// countStart adds a line to the file in HEIRLOOM_API_SERVERS, which counts the API servers that several processes start in one run.
// Without the variable it does nothing.
func countStart() error {
	path := os.Getenv("HEIRLOOM_API_SERVERS")
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("counting API servers: %w", err)
	}
	_, err = fmt.Fprintln(file, os.Getpid()) // one write, so that lines of several processes do not mix
	return errors.Join(err, file.Close())
}
