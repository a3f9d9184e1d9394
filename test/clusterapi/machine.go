// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

func (i *Infrastructure) machine(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	infra, err := i.get(ctx, fakeMachine(), req)
	if err != nil {
		return reconcile.Result{}, err
	}
	if infra == nil {
		return reconcile.Result{}, i.stop(req.Name)
	}
	owner, err := i.owner(ctx, infra, machine())
	if err != nil {
		return reconcile.Result{}, err
	}
	if owner == nil || !bootstraps(owner, "spec") {
		return reconcile.Result{}, nil // an event of its Machine will trigger another reconcile
	}
	err = i.change(ctx, infra, func() { set(infra, stage.ProviderID(req.Name), "spec", "providerID") })
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("setting the providerID: %w", err)
	}
	_, leads := infra.GetLabels()[clusterv1.MachineControlPlaneLabel]
	if leads {
		if err := i.initialize(ctx, req.NamespacedName); err != nil {
			return reconcile.Result{}, err
		}
	}
	if err := i.start(ctx, req.Name, registersWith(owner, leads)); err != nil {
		return reconcile.Result{}, err
	}
	if leads {
		if registered, err := i.markControlPlane(ctx, req.Name); err != nil || !registered {
			return reconcile.Result{RequeueAfter: retry}, err
		}
	}
	err = i.report(ctx, infra, map[string]any{"ready": true, "initialization": map[string]any{"provisioned": true}})
	if _, pooled := infra.GetLabels()[clusterv1.MachinePoolNameLabel]; err == nil && pooled {
		return i.rest(ctx, req.Name)
	}
	return reconcile.Result{}, err
}

// bootstraps reports whether a Machine, or the template in a part of a MachinePool, has its bootstrap data.
func bootstraps(owner *unstructured.Unstructured, part ...string) bool {
	_, found, _ := unstructured.NestedString(owner.Object, append(part, "bootstrap", "dataSecretName")...)
	return found
}

// registersWith returns the taints with which kubeadm's kubelets register: the taint of control planes, or the taint that Cluster API's
// bootstrap provider adds for workers.
func registersWith(owner *unstructured.Unstructured, leads bool) []string {
	switch {
	case leads:
		return []string{controlPlaneRole + "=:NoSchedule"}
	case kubeadm(owner):
		return []string{clusterv1.NodeUninitializedTaint.Key + "=:" + string(corev1.TaintEffectNoSchedule)}
	default:
		return nil
	}
}

// kubeadm reports whether a Machine or a MachinePool has a KubeadmConfig: its own, or the KubeadmConfig of its pool.
func kubeadm(owner *unstructured.Unstructured) bool {
	for _, part := range [][]string{{"spec"}, {"spec", "template", "spec"}} {
		if _, found, _ := unstructured.NestedMap(owner.Object, append(part, "bootstrap", "configRef")...); found {
			return true
		}
	}
	_, pooled := owner.GetLabels()[clusterv1.MachinePoolNameLabel]
	return pooled
}

// set sets a field. The parents in the path must be objects or missing, as in the CRD.
func set(object *unstructured.Unstructured, value any, path ...string) {
	if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
		panic(fmt.Sprintf("the CRD and this disagree: %v", err))
	}
}

func (i *Infrastructure) start(ctx context.Context, name string, taints []string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.kubelets[name] != nil {
		return nil
	}
	// The kubelet outlives the request.
	kubelet, err := i.Workload.StartKubelet(context.WithoutCancel(ctx), controlplane.KubeletOptions{Name: name, Dir: i.Dir, RegisterWithTaints: taints})
	if err != nil {
		return err
	}
	i.kubelets[name] = kubelet
	return nil
}

// rest stops the kubelets of pool members once their Nodes are ready, and requeues until they are. The tests need no heartbeats, and each
// kubelet needs two of the 128 inotify instances that Linux gives a user.
func (i *Infrastructure) rest(ctx context.Context, names ...string) (reconcile.Result, error) {
	result := reconcile.Result{}
	for _, name := range names {
		node := &corev1.Node{}
		if err := i.workload.Get(ctx, client.ObjectKey{Name: name}, node); client.IgnoreNotFound(err) != nil {
			return result, fmt.Errorf("looking whether Node %s is ready: %w", name, err)
		}
		if !slices.ContainsFunc(node.Status.Conditions, isReady) {
			result.RequeueAfter = retry
			continue
		}
		i.mu.Lock()
		kubelet := i.kubelets[name]
		i.mu.Unlock()
		if kubelet != nil {
			if err := kubelet.Stop(); err != nil { // a second Stop does nothing
				return result, err
			}
		}
	}
	return result, nil
}

func isReady(condition corev1.NodeCondition) bool {
	return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
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
