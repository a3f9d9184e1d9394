// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is how long a read may delay the next one of the same object.
const patience = 100 * time.Millisecond

// Shared gets an object once for all that ask for it at the same time (BenchmarkRecheck). An answer is never older than the
// question: a read that has begun may have begun before the change that the question is about. So questions that arrive during a
// read wait for the next one, and share it. That makes two reads in a row for any number of questions at once.
//
// Those that ask share nothing but the answer, of which each gets a copy. A read has a time limit of its own, so that it does not
// fail when one of them gives up. It has none of the values of their contexts.
type Shared struct {
	client.Reader

	mu      sync.Mutex
	objects map[reference]*readsOf
}

// readsOf are the reads of one object: the latest that has begun and has not ended, and the one that questions wait for now.
type readsOf struct{ begun, next *read }

// Get implements client.Reader.
func (s *Shared) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return s.ask(ctx, refer(key, into)).copyTo(ctx, into, options...)
}

// ask implements asker.
func (s *Shared) ask(_ context.Context, to reference) *read {
	return s.askIf(to, func() bool { return true })
}

// askIf asks for an object. If that needs one more read, it must be allowed.
func (s *Shared) askIf(to reference, allowed func() bool) *read {
	s.mu.Lock()
	defer s.mu.Unlock()
	reads := s.objects[to]
	if reads != nil && reads.next != nil {
		return reads.next
	}
	if !allowed() {
		return refusedRead()
	}
	asked := &read{done: make(chan struct{})}
	if reads != nil {
		reads.next = asked
		go s.getAfter(reads.begun, to, reads)
		return asked
	}
	if s.objects == nil {
		s.objects = map[reference]*readsOf{}
	}
	reads = &readsOf{begun: asked}
	s.objects[to] = reads
	go s.get(asked, to, reads)
	return asked
}

// getAfter begins the next read once the one before has ended. A read that hangs does not hold up the next one for long.
func (s *Shared) getAfter(before *read, to reference, reads *readsOf) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-before.done:
	case <-late.C:
	}
	s.mu.Lock()
	asked := reads.next
	reads.begun, reads.next = asked, nil
	s.mu.Unlock()
	s.get(asked, to, reads)
}

func (s *Shared) get(asked *read, to reference, reads *readsOf) {
	defer close(asked.done)
	defer s.ended(asked, to, reads)
	defer func() {
		if r := recover(); r != nil { // nothing else would stop the program from ending
			asked.err = fmt.Errorf("reading %s: panic: %v", to.key, r)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), liveTimeout)
	defer cancel()
	asked.object = to.empty()
	asked.err = s.Reader.Get(ctx, to.key, asked.object)
}

// ended forgets the object if nothing more is to be read of it.
func (s *Shared) ended(asked *read, to reference, reads *readsOf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reads.begun == asked && reads.next == nil {
		delete(s.objects, to)
	}
}
