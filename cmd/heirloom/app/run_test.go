// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

func TestRequestsAreAnsweredForAWhileAfterTheEnd(t *testing.T) {
	for _, delay := range []time.Duration{0, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			told, tell := context.WithCancel(t.Context())
			ctx, stop := drain(told, delay)
			defer stop()
			synctest.Wait()
			Expect(ctx.Err()).NotTo(HaveOccurred())
			tell()
			since := time.Now()
			<-ctx.Done()
			Expect(time.Since(since)).To(Equal(delay))
		})
	}
}

// fakeManager fills its caches at once or never, and ends a given time after the stop. It cannot be stopped before its caches are filled.
type fakeManager struct {
	manager.Manager
	cache.Cache
	filled       bool
	takes        time.Duration
	fails, ended error
	over         <-chan struct{}
}

func (m fakeManager) GetCache() cache.Cache { return m }

func (m fakeManager) WaitForCacheSync(ctx context.Context) bool {
	if !m.filled {
		<-ctx.Done()
	}
	return m.filled
}

func (m fakeManager) Start(ctx context.Context) error {
	if m.fails != nil {
		return m.fails
	}
	<-ctx.Done()
	if !m.filled {
		<-m.over
	}
	<-time.After(m.takes)
	return m.ended
}

func TestTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		manager fakeManager
		takes   time.Duration
		problem string
	}{
		"what is under way is finished":                         {manager: fakeManager{filled: true, takes: time.Second}, takes: time.Second},
		"before the caches are filled there is nothing to do":   {manager: fakeManager{}},
		"what does not end ends with the program":               {manager: fakeManager{filled: true, takes: shutdownTimeout, ended: errors.New("too late")}, takes: shutdownTimeout},
		"a program that fails says so":                          {manager: fakeManager{filled: true, fails: errors.New("broken")}, problem: "running: broken"},
		"also before its caches are filled, which are not read": {manager: fakeManager{fails: errors.New("broken")}, problem: "running: broken"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				told, over := time.Now().Add(time.Minute), make(chan struct{})
				defer close(over)
				time.AfterFunc(time.Minute, stop)
				tc.manager.over = over
				err := start(ctx, tc.manager, &atomic.Bool{})
				if tc.problem == "" {
					Expect(err).NotTo(HaveOccurred())
					Expect(time.Since(told)).To(Equal(tc.takes))
					return
				}
				Expect(err).To(MatchError(tc.problem))
			})
		})
	}
}
