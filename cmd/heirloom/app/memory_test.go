// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"math"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	. "github.com/onsi/gomega"
)

// The Go runtime keeps to nine tenths of the container's limit. Where there is none, or GOMEMLIMIT says something else, it is
// left as it is.
func TestMemoryLimit(t *testing.T) {
	Expect := NewWithT(t).Expect
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for _, none := range []error{memlimit.ErrNoLimit, errors.New("broken")} {
		debug.SetMemoryLimit(math.MaxInt64)
		limitMemory(func() (uint64, error) { return 0, none })
		Expect(debug.SetMemoryLimit(-1)).To(BeEquivalentTo(math.MaxInt64))
	}
	limitMemory(memlimit.Limit(1 << 30))
	Expect(debug.SetMemoryLimit(-1)).To(BeEquivalentTo((1<<30)/10*9 + 3))

	t.Setenv("GOMEMLIMIT", "512MiB")
	debug.SetMemoryLimit(512 << 20)
	limitMemory(memlimit.Limit(1 << 30))
	Expect(debug.SetMemoryLimit(-1)).To(BeEquivalentTo(512 << 20))
}
