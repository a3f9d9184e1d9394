// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// Pools is an infrastructure provider of MachinePools, because the in-memory provider has none. If a FakeMachinePool says "machines: true",
// each replica is a DevMachine in memory, and so a Machine. Otherwise each replica is only a Node.
type Pools struct {
	client client.Client
	live   client.Reader
	ended  chan error
	cancel context.CancelFunc
}

// poolFinalizer keeps a FakeMachinePool until its replicas are gone.
const poolFinalizer = "infrastructure.cluster.x-k8s.io/fakemachinepool"

// StartPools starts the provider's controller.
func StartPools(ctx context.Context, management *rest.Config) (*Pools, error) {
	mgr, err := ctrl.NewManager(management, ctrl.Options{
		Scheme: stage.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("creating the manager of the provider of pools: %w", err)
	}
	p := &Pools{client: mgr.GetClient(), live: mgr.GetAPIReader(), ended: make(chan error, 1)}
	err = ctrl.NewControllerManagedBy(mgr).For(infra("FakeMachinePool")).
		Watches(&clusterv1.MachinePool{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, mp client.Object) []reconcile.Request {
			return requestFor(mp, mp.(*clusterv1.MachinePool).Spec.Template.Spec.InfrastructureRef.Name)
		})).
		Watches(infra("DevMachine"), handler.EnqueueRequestsFromMapFunc(poolOf)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(poolOf)).
		Complete(reconcile.Func(p.reconcile))
	if err != nil {
		return nil, fmt.Errorf("adding the controller of FakeMachinePool: %w", err)
	}
	ctx, p.cancel = context.WithCancel(ctx)
	go func() { p.ended <- mgr.Start(ctx) }()
	return p, nil
}

// Stop stops the controller.
func (p *Pools) Stop() error {
	p.cancel()
	return <-p.ended
}

func infra(kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: kind})
	return o
}

func requestFor(o client.Object, name string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}}}
}

// poolOf returns the pool of a DevMachine or Machine, if it belongs to one: the name of a replica is the pool's name and a number.
func poolOf(_ context.Context, o client.Object) []reconcile.Request {
	number := strings.LastIndex(o.GetName(), "-")
	if _, pooled := o.GetLabels()[clusterv1.MachinePoolNameLabel]; !pooled || number < 0 {
		return nil
	}
	return requestFor(o, o.GetName()[:number])
}

// replicas makes a pool have its replicas.
type replicas interface {
	// resize creates and deletes replicas. It returns their provider IDs, as far as they are known, and the number of replicas that exist.
	resize(ctx context.Context, wanted []string) (ids []any, exist int, err error)
}

func (p *Pools) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pool := infra("FakeMachinePool")
	if err := p.client.Get(ctx, req.NamespacedName, pool); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	owner, err := p.owner(ctx, pool)
	if err != nil || owner == nil || owner.Spec.Template.Spec.Bootstrap.DataSecretName == nil {
		return reconcile.Result{}, err // an event of its MachinePool will trigger another reconcile
	}
	deleted := !pool.GetDeletionTimestamp().IsZero()
	var wanted []string
	if !deleted {
		if err := p.change(ctx, pool, func() { controllerutil.AddFinalizer(pool, poolFinalizer) }); err != nil {
			return reconcile.Result{}, err
		}
		for number := range ptr.Deref(owner.Spec.Replicas, 0) {
			wanted = append(wanted, fmt.Sprintf("%s-%d", pool.GetName(), number))
		}
	}
	hasMachines, _, _ := unstructured.NestedBool(pool.Object, "spec", "machines")
	all := replicas(bareNodes{p, owner, pool})
	if hasMachines {
		all = devMachines{p, owner, pool}
	}
	ids, exist, err := all.resize(ctx, wanted)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !deleted:
		if err := p.report(ctx, pool, hasMachines, ids, wanted); err != nil {
			return reconcile.Result{}, err
		}
		return p.install(ctx, owner, wanted)
	case exist == 0:
		return reconcile.Result{}, p.change(ctx, pool, func() { controllerutil.RemoveFinalizer(pool, poolFinalizer) })
	}
	return reconcile.Result{}, nil // their deletion triggers another reconcile
}

func (p *Pools) owner(ctx context.Context, pool client.Object) (*clusterv1.MachinePool, error) {
	for _, ref := range pool.GetOwnerReferences() {
		if ref.Kind == "MachinePool" {
			mp := &clusterv1.MachinePool{}
			err := p.live.Get(ctx, client.ObjectKey{Namespace: pool.GetNamespace(), Name: ref.Name}, mp)
			if err == nil {
				return mp, nil
			}
			return nil, client.IgnoreNotFound(err)
		}
	}
	return nil, nil
}

// install sets the version of the replicas' kubelets, and waits for Nodes that do not exist yet.
func (p *Pools) install(ctx context.Context, owner *clusterv1.MachinePool, wanted []string) (result reconcile.Result, err error) {
	server, err := Workload(ctx, p.live, client.ObjectKey{Namespace: owner.Namespace, Name: owner.Spec.ClusterName})
	if err != nil {
		return result, client.IgnoreNotFound(err)
	}
	for _, name := range wanted {
		node := &corev1.Node{}
		err := server.Get(ctx, client.ObjectKey{Name: name}, node)
		if apierrors.IsNotFound(err) {
			result.RequeueAfter = 500 * time.Millisecond
			continue
		}
		if before := node.DeepCopy(); err == nil && node.Status.NodeInfo.KubeletVersion != owner.Spec.Template.Spec.Version {
			node.Status.NodeInfo.KubeletVersion = owner.Spec.Template.Spec.Version
			err = server.Patch(ctx, node, client.MergeFrom(before)) // this API server has no subresources
		}
		if err != nil {
			return result, fmt.Errorf("installing Node %s: %w", name, err)
		}
	}
	return result, nil
}

// report writes the fields that the MachinePool's controller reads. It does not watch Machines: it counts ready Machines when their infrastructure
// changes.
func (p *Pools) report(ctx context.Context, pool *unstructured.Unstructured, hasMachines bool, ids []any, wanted []string) error {
	if err := p.change(ctx, pool, func() { _ = unstructured.SetNestedSlice(pool.Object, ids, "spec", "providerIDList") }); err != nil {
		return err
	}
	status := map[string]any{"ready": true, "replicas": int64(len(wanted)), "initialization": map[string]any{"provisioned": true}}
	if hasMachines {
		var ready int64
		for _, name := range wanted {
			m := &clusterv1.Machine{}
			err := p.client.Get(ctx, client.ObjectKey{Namespace: pool.GetNamespace(), Name: name}, m)
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("getting Machine %s: %w", name, err)
			}
			if apimeta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineReadyCondition) {
				ready++
			}
		}
		status["infrastructureMachineKind"], status["readyReplicas"] = "DevMachine", ready
	}
	before := pool.DeepCopy()
	if pool.Object["status"] = status; equality.Semantic.DeepEqual(before.Object, pool.Object) {
		return nil
	}
	return client.IgnoreNotFound(p.client.Status().Patch(ctx, pool, client.MergeFrom(before)))
}

// change patches an object, unless nothing changes.
func (p *Pools) change(ctx context.Context, object *unstructured.Unstructured, how func()) error {
	before := object.DeepCopy()
	how()
	if equality.Semantic.DeepEqual(before.Object, object.Object) {
		return nil
	}
	return client.IgnoreNotFound(p.client.Patch(ctx, object, client.MergeFrom(before)))
}

// devMachines are replicas for which Cluster API creates Machines.
type devMachines struct {
	*Pools
	owner *clusterv1.MachinePool
	pool  *unstructured.Unstructured
}

// resize deletes the Machines of surplus DevMachines, as the contract of MachinePool Machines requires.
func (d devMachines) resize(ctx context.Context, wanted []string) (ids []any, exist int, err error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(infra("DevMachineList").GroupVersionKind())
	err = d.live.List(ctx, all, client.InNamespace(d.pool.GetNamespace()), client.MatchingLabels{clusterv1.MachinePoolNameLabel: d.owner.Name})
	if err != nil {
		return nil, 0, fmt.Errorf("listing DevMachines: %w", err)
	}
	missing := slices.Clone(wanted)
	for i := range all.Items {
		m := &all.Items[i]
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == m.GetName() })
		if id, _, _ := unstructured.NestedString(m.Object, "spec", "providerID"); id != "" {
			ids = append(ids, id)
		}
		if slices.Contains(wanted, m.GetName()) || !m.GetDeletionTimestamp().IsZero() {
			continue
		}
		owner := client.Object(m)
		if slices.ContainsFunc(m.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.Kind == "Machine" }) {
			owner = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName()}}
		}
		if err := d.client.Delete(ctx, owner); client.IgnoreNotFound(err) != nil {
			return nil, 0, fmt.Errorf("deleting a surplus replica: %w", err)
		}
	}
	for _, name := range missing {
		if err := d.create(ctx, name); err != nil {
			return nil, 0, err
		}
	}
	return ids, len(all.Items) + len(missing), nil
}

func (d devMachines) create(ctx context.Context, name string) error {
	m := infra("DevMachine")
	m.SetNamespace(d.pool.GetNamespace())
	m.SetName(name)
	m.SetLabels(map[string]string{clusterv1.ClusterNameLabel: d.owner.Spec.ClusterName, clusterv1.MachinePoolNameLabel: d.owner.Name})
	// The pool is not the controller: the Machine will be.
	m.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: d.pool.GetAPIVersion(), Kind: d.pool.GetKind(), Name: d.pool.GetName(), UID: d.pool.GetUID(),
	}})
	m.Object["spec"] = map[string]any{"backend": map[string]any{"inMemory": map[string]any{}}}
	if err := d.client.Create(ctx, m); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating DevMachine %s: %w", name, err)
	}
	return nil
}

// bareNodes are replicas without Machines.
type bareNodes struct {
	*Pools
	owner *clusterv1.MachinePool
	pool  *unstructured.Unstructured
}

// resize makes Nodes as kubeadm's kubelets register them.
func (b bareNodes) resize(ctx context.Context, wanted []string) (ids []any, exist int, err error) {
	server, err := Workload(ctx, b.live, client.ObjectKey{Namespace: b.pool.GetNamespace(), Name: b.owner.Spec.ClusterName})
	if apierrors.IsNotFound(err) {
		return nil, 0, nil // the Cluster is gone
	}
	if err != nil {
		return nil, 0, err
	}
	known, _, _ := unstructured.NestedSlice(b.pool.Object, "spec", "providerIDList")
	for number := len(wanted); number < len(known); number++ {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", b.pool.GetName(), number)}}
		// The answer to a deletion has no body, which the client takes for an error.
		if err := server.Delete(ctx, node); err != nil && !apierrors.IsNotFound(server.Get(ctx, client.ObjectKeyFromObject(node), node)) {
			return nil, 0, fmt.Errorf("deleting Node %s: %w", node.Name, err)
		}
	}
	for _, name := range wanted {
		node := stage.Node(name)
		node.Spec.Taints = []corev1.Taint{clusterv1.NodeUninitializedTaint}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		ids = append(ids, node.Spec.ProviderID)
		err := server.Get(ctx, client.ObjectKeyFromObject(node), &corev1.Node{})
		if apierrors.IsNotFound(err) {
			err = server.Create(ctx, node)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("creating Node %s: %w", name, err)
		}
	}
	return ids, len(wanted), nil
}
