// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// machineSets applies rule 6.
type machineSets struct{ Dependencies }

// Reconcile implements reconcile.Reconciler.
func (r machineSets) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ms := &capi.MachineSet{}
	if err := r.Client.Get(ctx, req.NamespacedName, ms); err != nil {
		return ctrl.Result{}, gone(err, "MachineSet")
	}
	policy := r.Policy()
	cluster, err := r.Chain.Cluster(ctx, ms.Namespace, ms.Spec.ClusterName)
	if err != nil || policy.LeftAlone(ms, cluster) != "" {
		return ctrl.Result{}, err
	}
	md, err := r.Chain.MachineDeployment(ctx, ms)
	if err != nil || md == nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.apply(ctx, ms, inherit.OfMachineSet(ms), policy.MachineSet(md, ms))
}

// gone passes over an object that does not exist any more.
func gone(err error, kind string) error {
	if client.IgnoreNotFound(err) == nil {
		return nil
	}
	return fmt.Errorf("getting the %s: %w", kind, err)
}
