// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// family handles a Machine's objects of providers' kinds, which are known only once a Machine names them. It watches the
// control plane, and applies to the InfraMachine and BootstrapConfig what they inherit.
type family struct {
	Dependencies
	controlPlanes, externals *tracker
}

// unserved is when, at the earliest, to look again at a Machine that names a kind that the API server does not serve.
const unserved = 10 * time.Minute

// watch makes a change of the Machine's control plane wake the Machine, even if it does not exist yet, as in a restore.
func (r family) watch(ctx context.Context, m *clusterv1.Machine) (again time.Duration, err error) {
	ref := metav1.GetControllerOfNoCopy(m)
	if ref == nil {
		return 0, nil
	}
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	if gvk.Group != inherit.ControlPlaneGroup {
		return 0, nil
	}
	return r.watchControlPlanes(ctx, r.controlPlanes, gvk, r.children(&clusterv1.MachineList{}))
}

// watchControlPlanes watches control planes of that kind, in the version that the API server prefers. Of a kind that is not served it
// returns when to look again.
func (d Dependencies) watchControlPlanes(
	ctx context.Context, watches *tracker, gvk schema.GroupVersionKind, wake handler.EventHandler,
) (again time.Duration, err error) {
	gvk, served, err := d.Chain.Served(gvk)
	if err != nil {
		return 0, err
	}
	if !served {
		return wait.Jitter(unserved, 1), nil
	}
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(gvk)
	if err := watches.Watch(ctrl.LoggerFrom(ctx), kind, wake, changed()); err != nil {
		return 0, fmt.Errorf("watching control planes: %w", err)
	}
	return 0, nil
}

// applyToExternal applies to the Machine's external objects what they inherit. What is wrong with one does not keep the other waiting.
func (r family) applyToExternal(ctx context.Context, m *clusterv1.Machine) (again time.Duration, err error) {
	for _, ref := range ownerchain.ExternalRefs(m) {
		refAgain, refErr := r.external(ctx, m, ref)
		again, err = sooner(again, refAgain), errors.Join(err, refErr)
	}
	return again, err
}

// external applies to an InfraMachine or a BootstrapConfig what it inherits. Kinds of groups that the operator has not named are
// none of ours: there are no rights to read them.
func (r family) external(ctx context.Context, m *clusterv1.Machine, ref clusterv1.ContractVersionedObjectReference) (time.Duration, error) {
	if !slices.Contains(r.ProviderGroups, ref.GroupKind().Group) || inherit.IsTemplate(ref.Kind) {
		return 0, nil
	}
	gvk, served, err := r.Chain.Served(ref.GroupKind().WithVersion(""))
	if err != nil {
		return 0, err
	}
	if !served {
		return wait.Jitter(unserved, 1), nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(gvk)
	if err := r.externals.Watch(ctrl.LoggerFrom(ctx), object, r.machineOf(), changed()); err != nil {
		return 0, fmt.Errorf("watching %s: %w", ref.Kind, err)
	}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: ref.Name}, object); err != nil {
		return 0, gone(err, ref.Kind)
	}
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues(ref.Kind, klog.KObj(object)))
	return applyTo(ctx, r.Dependencies, ownerchain.ExternalObjects(), object, object)
}

// machineOf wakes the Machine that controls an external object.
func (r family) machineOf() handler.EventHandler {
	return handler.EnqueueRequestForOwner(r.Client.Scheme(), r.Client.RESTMapper(), &clusterv1.Machine{}, handler.OnlyControllerOwner())
}
