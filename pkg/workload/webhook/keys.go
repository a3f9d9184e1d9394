// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/heirloom-dev/heirloom/pkg/broadcast"
	"github.com/heirloom-dev/heirloom/pkg/rotation"
)

// The keys' names in the Secret, and the annotations with their times.
const (
	currentData  = "current"
	nextData     = "next"
	previousData = "previous"

	currentSinceAnnotation = "heirloom.dev/current-since"
	nextSinceAnnotation    = "heirloom.dev/next-since"
)

// Keys are the keys of paths. A rotation has two steps. The first writes the next key, which replicas accept but do not use
// yet. The second makes it the current one, when all replicas have seen it. The previous key stays accepted until the next
// rotation begins, so that there is time to tell all API servers the new path.
type Keys struct {
	current, next, previous []byte
	// currentSince is when the current key became that, nextSince when the next one was made. Zero: unknown.
	currentSince, nextSince time.Time
}

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

// keysIn reads the keys from their Secret. Its error says what is wrong with the Secret and never quotes its content.
func keysIn(secret *corev1.Secret) (Keys, error) {
	var errs []error
	read := func(name string) []byte {
		key, found := secret.Data[name]
		if !found {
			return nil
		}
		if len(key) != KeySize {
			errs = append(errs, fmt.Errorf("its %q has %d bytes instead of %d", name, len(key), KeySize))
		}
		return key
	}
	k := Keys{
		current: read(currentData), next: read(nextData), previous: read(previousData),
		currentSince: rotation.TimeIn(secret, currentSinceAnnotation), nextSince: rotation.TimeIn(secret, nextSinceAnnotation),
	}
	if k.current == nil {
		errs = append(errs, fmt.Errorf("it has no %q", currentData))
	}
	if err := errors.Join(errs...); err != nil {
		return Keys{}, fmt.Errorf("the Secret %s/%s has no usable keys (once it is deleted, new ones are made): %w", secret.Namespace, secret.Name, err)
	}
	return k, nil
}

// put writes the keys into the Secret, and keeps everything else in it.
func (k Keys) put(secret *corev1.Secret) {
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for name, key := range map[string][]byte{currentData: k.current, nextData: k.next, previousData: k.previous} {
		if key == nil {
			delete(secret.Data, name)
		} else {
			secret.Data[name] = key
		}
	}
	rotation.PutTime(secret, currentSinceAnnotation, k.currentSince)
	rotation.PutTime(secret, nextSinceAnnotation, k.nextSince)
}

// Store holds the keys in the memory of one replica. The zero value has none, and accepts no path.
type Store struct {
	// Broadcaster sends an event whenever there is a new key to make paths with.
	broadcast.Broadcaster

	keys atomic.Pointer[Keys]
}

// Set takes the keys from their Secret, whose versions must come in order. After an error, the known keys stay in force.
func (s *Store) Set(secret *corev1.Secret) error {
	keys, err := keysIn(secret.DeepCopy())
	if err != nil {
		return err
	}
	before := s.keys.Swap(&keys)
	if before == nil || !bytes.Equal(before.current, keys.current) {
		s.Publish()
	}
	return nil
}

// Current returns the key to make paths with, or nil while there is none.
func (s *Store) Current() []byte { return s.load().current }

// Accepted returns the keys that a path may have been made with.
func (s *Store) Accepted() [][]byte { return s.load().Accepted() }

func (s *Store) load() Keys {
	if keys := s.keys.Load(); keys != nil {
		return *keys
	}
	return Keys{}
}
