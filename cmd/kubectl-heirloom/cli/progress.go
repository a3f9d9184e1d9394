// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"time"
)

// quiet is how long a step may take before the command says what it waits for.
const quiet = time.Second

// Progress says on standard error what a command is doing, if that takes longer than a second. Call the result when it is done.
func (f *Factory) Progress(format string, args ...any) (done func()) {
	timer := time.AfterFunc(quiet, func() { _, _ = fmt.Fprintf(f.ErrOut, format+" …\n", args...) })
	return func() { timer.Stop() }
}
