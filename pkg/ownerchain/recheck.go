// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"context"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Recheck decides by what the chain knows. If that may be too old for the decision, it decides once more by owners as the API server
// has them. Webhooks and loop both use it.
//
// A cache can be behind. Cluster API takes from an object what its owner no longer declares. A cache without the owner's change
// would make Heirloom put it back. So a decision is in doubt if it would change an object that may have been written later than the
// cached owner: an update always may, a stored object if the decision is Behind it.
//
// The second decision may take liveTimeout in all. It reads what the first one has read, all at once and each object once, and
// only what else it turns out to need one by one. If live is nil, nothing is in doubt.
func Recheck[D any](
	ctx context.Context, c *Chain, live client.Reader, inDoubt func(D) bool, decide func(context.Context, *Chain) (D, error),
) (D, error) {
	if live == nil {
		return decide(ctx, c)
	}
	first := takeNotes(c.Reader)
	decided, err := decide(ctx, c.with(first))
	if err != nil || !inDoubt(decided) {
		return decided, err
	}
	bounded, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	cached, answers := cachedBehind(c.Reader), first.askAgain(bounded, live)
	if first.hold(bounded, answers) {
		first.count(cached)
		return decided, nil
	}
	again, err := decide(bounded, c.with(Fresh{Cached: cached, Live: answers}))
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Deciding by the cache alone")
		return decided, nil
	}
	return again, nil
}

// Behind reports whether the object was written later than all that declares for it, as the chain knows them. Then the owner may
// have changed in between, and the object's writer may know. If the owner is later, the chain knows all that the owner declared
// when the object was written.
//
// The versions can be compared because all these kinds are custom resources, which an API server keeps in one etcd. If they are
// not numbers, the object counts as later.
func (d Decision) Behind(object client.Object) bool {
	for _, owner := range d.declaredBy {
		order, err := resourceversion.CompareResourceVersion(owner.GetResourceVersion(), object.GetResourceVersion())
		if err == nil && order >= 0 {
			return false
		}
	}
	return len(d.declaredBy) > 0
}
