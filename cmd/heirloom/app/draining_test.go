// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

func TestRequestsAreAnsweredForAWhileAfterTheEnd(t *testing.T) {
	for _, delay := range []time.Duration{0, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			ctx, cancel := context.WithCancel(t.Context())
			later, end := drain(ctx, delay)
			defer end()
			synctest.Wait()
			Expect(later.Err()).NotTo(HaveOccurred())
			cancel()
			told := time.Now()
			<-later.Done()
			Expect(time.Since(told)).To(Equal(delay))
		})
	}
}
