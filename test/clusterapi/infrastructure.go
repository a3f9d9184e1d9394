// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// Infrastructure is a provider of Cluster API. A FakeMachine becomes a hollow kubelet with its name in the workload cluster, and a
// FakeMachinePool several kubelets, with or without FakeMachines. A FakeCluster is provisioned at once.
type Infrastructure struct {
	Workload *controlplane.ControlPlane
	// Dir is the directory for the logs of kubelets.
	Dir string

	// client reads watched objects from a cache: a newer version triggers another reconcile.
	client client.Client
	// live reads from the API server.
	live client.Reader
	// workload is an administrator's client of the workload cluster, like kubeadm's on a control plane Machine.
	workload client.Client
	mu       sync.Mutex
	kubelets map[string]*controlplane.Kubelet
	ended    chan error
	cancel   context.CancelFunc
}

// Start starts the provider's controllers.
func (i *Infrastructure) Start(ctx context.Context, management *rest.Config) error {
	mgr, err := ctrl.NewManager(management, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 4},
	})
	if err != nil {
		return fmt.Errorf("creating the manager of the infrastructure provider: %w", err)
	}
	if i.workload, err = client.New(i.Workload.AdminConfig(), client.Options{}); err != nil {
		return fmt.Errorf("making a client of the workload cluster: %w", err)
	}
	i.client, i.live = mgr.GetClient(), mgr.GetAPIReader()
	i.kubelets, i.ended = map[string]*controlplane.Kubelet{}, make(chan error, 1)
	for gvk, reconciler := range map[schema.GroupVersionKind]reconcile.Func{
		fakeCluster(): i.cluster, externalControlPlane(): i.controlPlane,
	} {
		if err := ctrl.NewControllerManagedBy(mgr).For(object(gvk)).Complete(reconciler); err != nil {
			return fmt.Errorf("adding the controller of %s: %w", gvk.Kind, err)
		}
	}
	// The state of these objects also depends on their owners.
	err = ctrl.NewControllerManagedBy(mgr).For(object(fakeMachine())).
		Watches(object(machine()), handler.EnqueueRequestsFromMapFunc(infrastructureOf("spec"))).
		Complete(reconcile.Func(i.machine))
	if err != nil {
		return fmt.Errorf("adding the controller of FakeMachine: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).For(object(fakeMachinePool())).
		Watches(object(machinePool()), handler.EnqueueRequestsFromMapFunc(infrastructureOf("spec", "template", "spec"))).
		Owns(object(fakeMachine()), builder.MatchEveryOwner).
		Watches(object(machine()), handler.EnqueueRequestsFromMapFunc(poolOf)).
		Complete(reconcile.Func(i.machinePool))
	if err != nil {
		return fmt.Errorf("adding the controller of FakeMachinePool: %w", err)
	}
	ctx, i.cancel = context.WithCancel(ctx)
	go func() { i.ended <- mgr.Start(ctx) }()
	return nil
}

// Stop stops the controllers and every kubelet.
func (i *Infrastructure) Stop() error {
	i.cancel()
	errs := []error{<-i.ended}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, kubelet := range i.kubelets {
		errs = append(errs, kubelet.Stop())
	}
	return errors.Join(errs...)
}

func (i *Infrastructure) cluster(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	cluster, err := i.get(ctx, fakeCluster(), req)
	if err != nil || cluster == nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, i.report(ctx, cluster, map[string]any{"ready": true, "initialization": map[string]any{"provisioned": true}})
}

func (i *Infrastructure) controlPlane(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	cp, err := i.get(ctx, externalControlPlane(), req)
	if err != nil || cp == nil {
		return reconcile.Result{}, err
	}
	version, _, _ := unstructured.NestedString(cp.Object, "spec", "version")
	return reconcile.Result{}, i.report(ctx, cp, map[string]any{
		"version": version, "externalManagedControlPlane": true, "initialization": map[string]any{"controlPlaneInitialized": true},
	})
}

// get returns nil for an object that is gone. An object that is missing only in the cache has just been created.
func (i *Infrastructure) get(ctx context.Context, gvk schema.GroupVersionKind, req reconcile.Request) (*unstructured.Unstructured, error) {
	found := object(gvk)
	err := i.client.Get(ctx, req.NamespacedName, found)
	if apierrors.IsNotFound(err) {
		err = i.live.Get(ctx, req.NamespacedName, found)
	}
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return found, nil
}

// owner returns the owner of an object, or nil if there is none yet.
func (i *Infrastructure) owner(ctx context.Context, owned *unstructured.Unstructured, gvk schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	for _, ref := range owned.GetOwnerReferences() {
		if ref.Kind == gvk.Kind {
			return i.get(ctx, gvk, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: owned.GetNamespace(), Name: ref.Name}})
		}
	}
	return nil, nil
}

// change patches an object, unless nothing changes.
func (i *Infrastructure) change(ctx context.Context, object *unstructured.Unstructured, how func()) error {
	before := object.DeepCopy()
	how()
	if equality.Semantic.DeepEqual(before.Object, object.Object) {
		return nil
	}
	return client.IgnoreNotFound(i.client.Patch(ctx, object, client.MergeFrom(before)))
}

// infrastructureOf returns a function that maps an object to the object in its infrastructureRef, which is in this part of it.
func infrastructureOf(part ...string) handler.MapFunc {
	return func(_ context.Context, o client.Object) []reconcile.Request {
		name, _, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, slices.Concat(part, []string{"infrastructureRef", "name"})...)
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}}}
	}
}

func object(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	return o
}

// report writes an object's status, unless nothing changes.
func (i *Infrastructure) report(ctx context.Context, object *unstructured.Unstructured, status map[string]any) error {
	before := object.DeepCopy()
	object.Object["status"] = status
	if equality.Semantic.DeepEqual(before.Object, object.Object) {
		return nil
	}
	return client.IgnoreNotFound(i.client.Status().Patch(ctx, object, client.MergeFrom(before)))
}

func fakeCluster() schema.GroupVersionKind     { return fake("FakeCluster") }
func fakeMachine() schema.GroupVersionKind     { return fake("FakeMachine") }
func fakeMachinePool() schema.GroupVersionKind { return fake("FakeMachinePool") }

func fake(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: kind}
}

func machine() schema.GroupVersionKind     { return clusterv1.GroupVersion.WithKind("Machine") }
func machinePool() schema.GroupVersionKind { return clusterv1.GroupVersion.WithKind("MachinePool") }

// externalControlPlane has no Machines: the control plane of the tests runs instead.
func externalControlPlane() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "controlplane.cluster.x-k8s.io", Version: "v1beta2", Kind: "ModernControlPlane"}
}
