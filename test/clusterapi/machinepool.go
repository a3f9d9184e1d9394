// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// poolFinalizer keeps a pool until its Machines and kubelets are gone.
const poolFinalizer = "infrastructure.cluster.x-k8s.io/fakemachinepool"

// pool is a FakeMachinePool with the MachinePool that owns it.
type pool struct {
	infra, owner *unstructured.Unstructured
	// wanted is the desired number of members.
	wanted int
}

func (p pool) member(number int) string { return fmt.Sprintf("%s-%d", p.infra.GetName(), number) }

func (p pool) members() []string {
	names := make([]string, p.wanted)
	for number := range names {
		names[number] = p.member(number)
	}
	return names
}

// hasMachines reports whether each member has a FakeMachine, and so a Machine.
func (p pool) hasMachines() bool {
	machines, _, _ := unstructured.NestedBool(p.infra.Object, "spec", "machines")
	return machines
}

// known returns the number of members in the last report.
func (p pool) known() int {
	ids, _, _ := unstructured.NestedStringSlice(p.infra.Object, "spec", "providerIDList")
	return len(ids)
}

func (i *Infrastructure) machinePool(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	infra, err := i.get(ctx, fakeMachinePool(), req)
	if err != nil || infra == nil {
		return reconcile.Result{}, err
	}
	owner, err := i.owner(ctx, infra, machinePool())
	if err != nil || owner == nil || !bootstraps(owner, "spec", "template", "spec") {
		return reconcile.Result{}, err // an event of its MachinePool will trigger another reconcile
	}
	p := pool{infra: infra, owner: owner}
	if infra.GetDeletionTimestamp().IsZero() {
		replicas, _, _ := unstructured.NestedInt64(owner.Object, "spec", "replicas")
		p.wanted = int(replicas)
		if err := i.change(ctx, infra, func() { controllerutil.AddFinalizer(infra, poolFinalizer) }); err != nil {
			return reconcile.Result{}, fmt.Errorf("adding a finalizer: %w", err)
		}
	}
	resize := i.resizeKubelets
	if p.hasMachines() {
		resize = i.resizeMachines
	}
	left, err := resize(ctx, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !infra.GetDeletionTimestamp().IsZero() {
		if left > 0 {
			return reconcile.Result{}, nil // their deletion triggers another reconcile
		}
		return reconcile.Result{}, i.change(ctx, infra, func() { controllerutil.RemoveFinalizer(infra, poolFinalizer) })
	}
	if err := i.reportPool(ctx, p); err != nil || p.hasMachines() {
		return reconcile.Result{}, err
	}
	return i.rest(ctx, p.members()...)
}

func (i *Infrastructure) reportPool(ctx context.Context, p pool) error {
	ids := make([]any, p.wanted)
	for number := range ids {
		ids[number] = stage.ProviderID(p.member(number))
	}
	if err := i.change(ctx, p.infra, func() { set(p.infra, ids, "spec", "providerIDList") }); err != nil {
		return fmt.Errorf("setting the providerIDList: %w", err)
	}
	status := map[string]any{"ready": true, "replicas": int64(p.wanted), "initialization": map[string]any{"provisioned": true}}
	if p.hasMachines() {
		// MachinePools do not watch Machines: they count their ready Machines when their infrastructure changes.
		ready, err := i.readyMachines(ctx, p)
		if err != nil {
			return err
		}
		status["infrastructureMachineKind"], status["readyReplicas"] = fakeMachine().Kind, ready
	}
	return i.report(ctx, p.infra, status)
}

func (i *Infrastructure) readyMachines(ctx context.Context, p pool) (int64, error) {
	var ready int64
	for number := range p.wanted {
		key := client.ObjectKey{Namespace: p.infra.GetNamespace(), Name: p.member(number)}
		member, err := i.get(ctx, machine(), reconcile.Request{NamespacedName: key})
		if err != nil {
			return 0, err
		}
		if member == nil {
			continue
		}
		status, err := conditions.UnstructuredGet(member, clusterv1.MachineReadyCondition)
		if err != nil {
			return 0, fmt.Errorf("reading the conditions of Machine %s: %w", key.Name, err)
		}
		if status != nil && status.Status == metav1.ConditionTrue {
			ready++
		}
	}
	return ready, nil
}

// poolOf returns the pool of a Machine, if it is a member of a pool.
func poolOf(_ context.Context, machine client.Object) []reconcile.Request {
	number := strings.LastIndex(machine.GetName(), "-")
	if _, pooled := machine.GetLabels()[clusterv1.MachinePoolNameLabel]; !pooled || number < 0 {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: machine.GetNamespace(), Name: machine.GetName()[:number]}}}
}

// resizeKubelets starts and stops kubelets without Machines. It returns their number.
func (i *Infrastructure) resizeKubelets(ctx context.Context, p pool) (int, error) {
	for number := range p.wanted {
		if err := i.start(ctx, p.member(number), registersWith(p.owner, false)); err != nil {
			return 0, err
		}
	}
	for number := p.wanted; number < p.known(); number++ {
		if err := i.stop(p.member(number)); err != nil {
			return 0, err
		}
	}
	return p.wanted, nil
}

// resizeMachines creates FakeMachines, for which Cluster API creates Machines. It deletes the Machines of surplus FakeMachines, as the
// contract of MachinePool Machines requires. It returns the number of FakeMachines.
func (i *Infrastructure) resizeMachines(ctx context.Context, p pool) (int, error) {
	for number := range p.wanted {
		key := client.ObjectKey{Namespace: p.infra.GetNamespace(), Name: p.member(number)}
		known, err := i.get(ctx, fakeMachine(), reconcile.Request{NamespacedName: key})
		if err != nil {
			return 0, err
		}
		if known == nil {
			if err := i.createMachine(ctx, p, key); err != nil {
				return 0, err
			}
		}
	}
	left := p.wanted
	for number := p.wanted; number < p.known(); number++ {
		key := client.ObjectKey{Namespace: p.infra.GetNamespace(), Name: p.member(number)}
		member, err := i.get(ctx, fakeMachine(), reconcile.Request{NamespacedName: key})
		if err != nil {
			return 0, err
		}
		if member == nil {
			continue
		}
		left++
		owner, err := i.owner(ctx, member, machine())
		if err != nil {
			return 0, err
		}
		if owner == nil {
			owner = member
		}
		if owner.GetDeletionTimestamp().IsZero() {
			if err := i.client.Delete(ctx, owner); client.IgnoreNotFound(err) != nil {
				return 0, fmt.Errorf("deleting %s %s: %w", owner.GetKind(), owner.GetName(), err)
			}
		}
	}
	return left, nil
}

// createMachine creates a FakeMachine. Its events trigger a reconcile of its pool.
func (i *Infrastructure) createMachine(ctx context.Context, p pool, key client.ObjectKey) error {
	member := object(fakeMachine())
	member.SetNamespace(key.Namespace)
	member.SetName(key.Name)
	member.SetLabels(map[string]string{
		clusterv1.ClusterNameLabel:     p.owner.GetLabels()[clusterv1.ClusterNameLabel],
		clusterv1.MachinePoolNameLabel: p.owner.GetName(),
	})
	// The pool is not the controller: the Machine will be.
	member.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: p.infra.GetAPIVersion(), Kind: p.infra.GetKind(), Name: p.infra.GetName(), UID: p.infra.GetUID(),
	}})
	if err := i.client.Create(ctx, member); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating FakeMachine %s: %w", member.GetName(), err)
	}
	return nil
}
