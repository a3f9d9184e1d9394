// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"sync"
	"time"

	"k8s.io/utils/lru"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

const (
	// silence is how long the loop waits for a controller of Cluster API that gets nowhere, and longest how long for one that does.
	silence, longest = 10 * time.Second, time.Minute
	// settling is how long after the controller is done the loop waits for its writes to reach the cache.
	settling = time.Second
	// deferredOwners is how many owners are remembered. For the others the time begins anew.
	deferredOwners = 10_000
)

// deferral leaves to Cluster API what its controllers write themselves. If both wrote the same, every change would cost the API
// server twice, and a key that both own would only go once both have let go of it. So the loop writes only what is still missing once
// the controller has observed the owner's generation, or if the controller gets nowhere.
type deferral struct {
	now func() time.Time

	mu     sync.Mutex // guards the entries, too
	owners *lru.Cache // *deferred by the owner's UID
}

// deferred is what is known of a controller that has something to do.
type deferred struct {
	generation int64
	// since is when the loop first saw that generation, progress when an object of the owner was last found to be up to date, done when
	// the controller was first seen to have observed the generation.
	since, progress, done time.Time
}

func newDeferral(now func() time.Time) *deferral {
	return &deferral{now: now, owners: lru.New(deferredOwners)}
}

// wait returns how long to wait for Cluster API to write the object. If it is 0, the reason says why the loop does not wait.
func (d *deferral) wait(by ownerchain.Propagation) (time.Duration, metrics.WriteReason) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	switch owner := d.of(by, now); {
	case by.Observed == 0:
		return 0, metrics.Ahead
	case owner == nil:
		return 0, metrics.Unpropagated
	case by.Pending():
		until := owner.progress.Add(silence)
		if most := owner.since.Add(longest); until.After(most) {
			until = most
		}
		return max(0, until.Sub(now)), metrics.Late
	default:
		if owner.done.IsZero() {
			owner.done = now
		}
		return max(0, owner.done.Add(settling).Sub(now)), metrics.Unpropagated
	}
}

// upToDate notes that an object of the owner has everything, so the controller gets somewhere.
func (d *deferral) upToDate(by ownerchain.Propagation) {
	if !by.Pending() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	d.of(by, now).progress = now
}

// of returns what is known of an owner at its generation; nil if its controller was never seen to have something to do.
func (d *deferral) of(by ownerchain.Propagation, now time.Time) *deferred {
	known, _ := d.owners.Get(by.Owner)
	owner, _ := known.(*deferred)
	if owner != nil && owner.generation == by.Generation {
		return owner
	}
	if !by.Pending() {
		return nil
	}
	owner = &deferred{generation: by.Generation, since: now, progress: now}
	d.owners.Add(by.Owner, owner)
	return owner
}
