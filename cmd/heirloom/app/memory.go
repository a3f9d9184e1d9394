// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
	ctrl "sigs.k8s.io/controller-runtime"
)

// memoryShare is how much of the container's memory the Go runtime may use before it collects garbage all the time. The rest
// is for memory that the runtime does not count.
const memoryShare = 0.9

// limitMemory tells the Go runtime its container's memory limit, unless the environment variable GOMEMLIMIT does. Otherwise
// garbage alone may reach the limit, and the program is killed.
func limitMemory(of memlimit.Provider) {
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare), memlimit.WithProvider(of))
	switch {
	case errors.Is(err, memlimit.ErrCgroupsNotSupported), errors.Is(err, memlimit.ErrNoCgroup), err == nil && limit == math.MaxInt64:
		ctrl.Log.Info("Memory has no limit")
	case err != nil:
		ctrl.Log.Error(err, "Failed to find out the container's memory limit")
	default:
		ctrl.Log.Info("Memory is limited", "bytes", limit)
	}
}
