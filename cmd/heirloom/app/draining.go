// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// drain returns a context that is done a while after ctx, or when the function that it returns is called.
func drain(ctx context.Context, delay time.Duration) (context.Context, context.CancelFunc) {
	later, end := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() {
		ctrl.Log.Info("Told to stop; requests are still answered", "for", delay)
		time.AfterFunc(delay, end)
	})
	return later, func() {
		forget()
		end()
	}
}
