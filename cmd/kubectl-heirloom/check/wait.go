// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Until runs the checks again and again, until nothing has failed or the time is over, and returns the last answer. report and err
// are the first answer, and again is told of each that is not the last.
func Until(
	ctx context.Context, interval, timeout time.Duration, report *Report, err error,
	run func(context.Context) (*Report, error), again func(*Report, error),
) (*Report, error) {
	done := func() bool { return err == nil && report.Answered() && !report.Has(Failed) }
	if done() {
		return report, nil
	}
	_ = wait.PollUntilContextTimeout(ctx, interval, timeout, false, func(ctx context.Context) (bool, error) {
		again(report, err)
		// An answer that was cut off says less than the one before.
		if last, lastErr := run(ctx); ctx.Err() == nil {
			report, err = last, lastErr
		}
		return done(), nil
	})
	return report, err
}
