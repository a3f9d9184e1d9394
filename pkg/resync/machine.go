// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/controllers/external"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// machines applies rules 4, 8 and 9.
type machines struct {
	Dependencies
	controlPlanes *external.ObjectTracker
}

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
	owner, err := r.Chain.MachineOwner(ctx, m)
	if err != nil || owner.Missing {
		return ctrl.Result{}, err
	}
	if err := r.watch(ctx, owner.Object); err != nil {
		return ctrl.Result{}, err
	}
	desired, problems := policy.MachineFrom(owner.Template, m)
	r.leftOut(m, problems)
	return ctrl.Result{}, r.apply(ctx, m, inherit.OfMachine(m), desired)
}

// watch makes a change of a control plane wake its Machines. Its kind is a provider's and not known before a Machine of
// it is seen.
func (r machines) watch(ctx context.Context, owner client.Object) error {
	if _, ok := owner.(*unstructured.Unstructured); !ok {
		return nil
	}
	if err := r.controlPlanes.Watch(ctrl.LoggerFrom(ctx), owner, r.children(&capi.MachineList{})); err != nil {
		return fmt.Errorf("watching control planes: %w", err)
	}
	return nil
}
