// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// Infrastructure is a provider of Cluster API. A FakeMachine becomes a hollow kubelet of its own name in the workload
// cluster; a FakeCluster is provisioned at once.
type Infrastructure struct {
	Workload *controlplane.ControlPlane
	// Dir is where kubelets leave their logs.
	Dir string

	client   client.Client
	mu       sync.Mutex
	kubelets map[string]*controlplane.Kubelet
	ended    chan error
	cancel   context.CancelFunc
}

// Start starts the provider's controllers.
func (i *Infrastructure) Start(ctx context.Context, management *rest.Config) error {
	mgr, err := ctrl.NewManager(management, ctrl.Options{
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 4},
	})
	if err != nil {
		return fmt.Errorf("creating the manager of the infrastructure provider: %w", err)
	}
	i.client, i.kubelets, i.ended = mgr.GetClient(), map[string]*controlplane.Kubelet{}, make(chan error, 1)
	for gvk, reconciler := range map[schema.GroupVersionKind]reconcile.Func{
		fakeCluster(): i.cluster, fakeMachine(): i.machine, externalControlPlane(): i.controlPlane,
	} {
		kind := &unstructured.Unstructured{}
		kind.SetGroupVersionKind(gvk)
		if err := ctrl.NewControllerManagedBy(mgr).For(kind).Complete(reconciler); err != nil {
			return fmt.Errorf("adding the controller of %s: %w", gvk.Kind, err)
		}
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

func (i *Infrastructure) machine(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	machine, err := i.get(ctx, fakeMachine(), req)
	if err != nil {
		return reconcile.Result{}, err
	}
	if machine == nil {
		return reconcile.Result{}, i.stop(req.Name)
	}
	providerID := "kubemark://" + req.Name
	if id, _, _ := unstructured.NestedString(machine.Object, "spec", "providerID"); id != providerID {
		before := machine.DeepCopy()
		if err := unstructured.SetNestedField(machine.Object, providerID, "spec", "providerID"); err != nil {
			return reconcile.Result{}, fmt.Errorf("setting the providerID: %w", err)
		}
		if err := i.client.Patch(ctx, machine, client.MergeFrom(before)); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	if err := i.start(ctx, req.Name); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, i.report(ctx, machine, map[string]any{"ready": true, "initialization": map[string]any{"provisioned": true}})
}

// get returns nil for an object that is gone.
func (i *Infrastructure) get(ctx context.Context, gvk schema.GroupVersionKind, req reconcile.Request) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	if err := i.client.Get(ctx, req.NamespacedName, object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return object, nil
}

// report writes an object's status, once.
func (i *Infrastructure) report(ctx context.Context, object *unstructured.Unstructured, status map[string]any) error {
	before := object.DeepCopy()
	object.Object["status"] = status
	if equality.Semantic.DeepEqual(before.Object, object.Object) {
		return nil
	}
	return client.IgnoreNotFound(i.client.Status().Patch(ctx, object, client.MergeFrom(before)))
}

func (i *Infrastructure) start(ctx context.Context, name string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.kubelets[name] != nil {
		return nil
	}
	// It outlives the request.
	kubelet, err := i.Workload.StartKubelet(context.WithoutCancel(ctx), controlplane.KubeletOptions{Name: name, Dir: i.Dir})
	if err != nil {
		return err
	}
	i.kubelets[name] = kubelet
	return nil
}

func (i *Infrastructure) stop(name string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	kubelet := i.kubelets[name]
	if kubelet == nil {
		return nil
	}
	delete(i.kubelets, name)
	return kubelet.Stop()
}

func fakeCluster() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: "FakeCluster"}
}

func fakeMachine() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: "FakeMachine"}
}

// externalControlPlane has no Machines: what runs is the control plane of the tests.
func externalControlPlane() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "controlplane.cluster.x-k8s.io", Version: "v1beta2", Kind: "ModernControlPlane"}
}
