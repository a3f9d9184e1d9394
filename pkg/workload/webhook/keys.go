// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/rand"
	"time"

	"github.com/heirloom-dev/heirloom/pkg/rotation"
)

// Keys are the keys of paths. Of a rotation's two steps, the first writes the next key, which every replica then accepts
// and nobody uses; the second, when all replicas have seen it, makes it the current one. The key before stays accepted
// until the next rotation begins, so that there is time to tell all API servers the new path.
type Keys struct {
	current, next, previous []byte
	// currentSince is when the current key became that, nextSince when the next one was made. Zero: nobody knows.
	currentSince, nextSince time.Time
}

// Current returns the key to make paths with, or nil while there is none.
func (k Keys) Current() []byte { return k.current }

// Accepted returns the keys that a path may have been made with.
func (k Keys) Accepted() [][]byte {
	var accepted [][]byte
	for _, key := range [][]byte{k.current, k.next, k.previous} {
		if key != nil {
			accepted = append(accepted, key)
		}
	}
	return accepted
}

// schedule is when keys are replaced. Replicas see a change within grace, and API servers are told their new path within
// the rest of the period.
type schedule struct{ period, grace time.Duration }

// rotate returns the keys as they should be now, whether that is a change, and when to look again.
func (s schedule) rotate(k Keys, now time.Time, newKey func() []byte) (result Keys, changed bool, again time.Duration) {
	switch {
	case k.current == nil:
		return Keys{current: newKey(), currentSince: now}, true, s.period
	case k.next == nil && rotation.Unknown(k.currentSince, now):
		k.currentSince = now
		return k, true, s.period
	case k.next == nil:
		if left := s.period - now.Sub(k.currentSince); left > 0 {
			return k, false, left
		}
		return Keys{current: k.current, currentSince: k.currentSince, next: newKey(), nextSince: now}, true, s.grace
	case rotation.Unknown(k.nextSince, now):
		k.nextSince = now
		return k, true, s.grace
	}
	if left := s.grace - now.Sub(k.nextSince); left > 0 {
		return k, false, left
	}
	return Keys{current: k.next, currentSince: now, previous: k.current}, true, s.period
}

// randomKey returns a new key. The program ends if the system has no randomness; it does not go on with a weak key.
func randomKey() []byte {
	key := make([]byte, KeySize)
	_, _ = rand.Read(key) // never returns an error
	return key
}
