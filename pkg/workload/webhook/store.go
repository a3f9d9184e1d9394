// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/heirloom-dev/heirloom/pkg/broadcast"
)

// Store holds the keys in the memory of one replica. The zero value has none, and accepts no path.
type Store struct {
	// Broadcaster tells whenever there is another key to make paths with.
	broadcast.Broadcaster

	keys atomic.Pointer[Keys]
}

// Set takes the keys from their Secret, in the order of its versions. While it returns an error, the keys known before
// stay in force.
func (s *Store) Set(secret *corev1.Secret) error {
	keys, err := keysIn(secret.DeepCopy())
	if err != nil {
		return err
	}
	before := s.keys.Swap(&keys)
	if before == nil || !bytes.Equal(before.Current(), keys.Current()) {
		s.Publish()
	}
	return nil
}

// Current returns the key to make paths with, or nil while there is none.
func (s *Store) Current() []byte {
	if keys := s.keys.Load(); keys != nil {
		return keys.Current()
	}
	return nil
}

// Accepted returns the keys that a path may have been made with.
func (s *Store) Accepted() [][]byte {
	if keys := s.keys.Load(); keys != nil {
		return keys.Accepted()
	}
	return nil
}
