// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// recheck answers out of the cache and, where that would change an update, once more out of the API server. A settled object
// needs no change, so what an update lacks may be what Cluster API has just taken away, because its owner no longer declares
// it, and the cache has not heard of that yet. It must not come back. Creates are not asked about twice: they always lack
// something, and no key can come back with them.
func (d Dependencies) recheck(
	ctx context.Context, req admission.Request, decide func(context.Context, *ownerchain.Chain) (answer, error),
) (answer, error) {
	decided, err := decide(ctx, d.Chain)
	if err != nil || d.Live == nil || req.Operation != admissionv1.Update || len(decided.patch) == 0 {
		return decided, err
	}
	fresh, bounded, cancel := d.Chain.Fresh(ctx, d.Live)
	defer cancel()
	again, err := decide(bounded, fresh)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Answering out of the cache alone")
		return decided, nil
	}
	return again, nil
}
