// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// machines applies rule 8.
type machines struct{ Dependencies }

// Reconcile implements reconcile.Reconciler.
func (r machines) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m := &capi.Machine{}
	if err := r.Client.Get(ctx, req.NamespacedName, m); err != nil {
		return ctrl.Result{}, gone(err, "Machine")
	}
	policy := r.Policy()
	cluster, err := r.Chain.Cluster(ctx, m.Namespace, m.Spec.ClusterName)
	if err != nil || policy.LeftAlone(m, cluster) != "" {
		return ctrl.Result{}, err
	}
	ms, err := r.Chain.MachineSet(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	desired, problems := policy.Machine(ms, m)
	r.leftOut(m, problems)
	return ctrl.Result{}, r.apply(ctx, m, inherit.OfMachine(m), desired)
}
