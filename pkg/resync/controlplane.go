// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// controlPlanes applies to control planes what their topology declares. A request names a Cluster, because only the Cluster
// tells the kind of its control plane.
type controlPlanes struct {
	Dependencies
	tracker *tracker
}

// Reconcile implements reconcile.Reconciler.
func (r controlPlanes) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, gone(err, "Cluster")
	}
	ref := cluster.Spec.ControlPlaneRef
	if !cluster.Spec.Topology.IsDefined() || ref.GroupKind().Group != inherit.ControlPlaneGroup {
		return ctrl.Result{}, nil
	}
	again, err := r.sync(ctx, cluster, ref)
	if err != nil {
		return r.unlessNotListed(ctx, cluster.Namespace, cluster.Name, err, again)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

func (r controlPlanes) sync(ctx context.Context, cluster *clusterv1.Cluster, ref clusterv1.ContractVersionedObjectReference) (again time.Duration, err error) {
	again, err = r.watchControlPlanes(ctx, r.tracker, ref.GroupKind().WithVersion(""), clusterOf())
	if err != nil {
		return 0, err
	}
	apiVersion := ref.GroupKind().WithVersion("").GroupVersion().String()
	object, cp, err := r.Chain.ControlPlane(ctx, cluster.Namespace, &metav1.OwnerReference{APIVersion: apiVersion, Kind: ref.Kind, Name: ref.Name})
	if err != nil || object == nil {
		return again, err
	}
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues(ref.Kind, klog.KObj(object)))
	_, err = applyTo(ctx, r.Dependencies, ownerchain.ControlPlanes(), cp, object) // what a topology declares is never left to Cluster API
	return 0, err
}

// clusterOf wakes the Cluster of a control plane.
func clusterOf() handler.EventHandler {
	return enqueue(func(_ context.Context, cp client.Object) ([]types.NamespacedName, error) {
		return []types.NamespacedName{{Namespace: cp.GetNamespace(), Name: cp.GetLabels()[clusterv1.ClusterNameLabel]}}, nil
	})
}
