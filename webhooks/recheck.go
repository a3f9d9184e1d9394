// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// recheck decides by the cache and, if that would change an update, once more by the API server. An object that has all it inherits
// needs no change, so what an update lacks may be what Cluster API has just removed. Creates are never in doubt: they always lack
// something, and cannot restore an outdated key.
func (d Dependencies) recheck(
	ctx context.Context, req admission.Request, decide func(context.Context, *ownerchain.Chain) (answer, error),
) (answer, error) {
	changesUpdate := func(decided answer) bool { return req.Operation == admissionv1.Update && len(decided.patch) > 0 }
	return ownerchain.Recheck(ctx, d.Chain, d.Live, changesUpdate, decide)
}
