// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinepool"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

const providerID = "fake://"

// pool returns a MachinePool with two replicas.
func pool(set string) *clusterv1.MachinePool {
	mp := &clusterv1.MachinePool{}
	mp.Namespace, mp.Name, mp.Labels = fleet, set, map[string]string{clusterv1.ClusterNameLabel: clusterOf(set)}
	mp.Spec.ClusterName, mp.Spec.Replicas = clusterOf(set), ptr.To[int32](2)
	mp.Spec.Template.Spec = clusterv1.MachineSpec{
		ClusterName: clusterOf(set), Version: "v1.36.0", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("bootstrap-data")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: resources["FakeMachinePool"].Group, Kind: "FakeMachinePool", Name: set},
	}
	return mp
}

// poolOf returns the set of a Node of a MachinePool, or "".
func poolOf(node string) string {
	if number := strings.LastIndex(node, "-"); number >= 0 && kindOf(node[:number]) == "MachinePool" {
		return node[:number]
	}
	return ""
}

// setUpPools adds Cluster API's controller of MachinePools, if there are any.
func (w *World) setUpPools(ctx context.Context, mgr ctrl.Manager, clusters clustercache.ClusterCache, o controller.Options) error {
	if !w.options.Pools {
		return nil
	}
	return (&machinepool.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: clusters}).SetupWithManager(ctx, mgr, o)
}

// ownersOf returns the names of the owners that declare for a Node: its Machine and its set, or only its MachinePool.
func (h *history) ownersOf(node string) []string {
	if set := poolOf(node); set != "" {
		return []string{set}
	}
	return []string{node, h.members[node]}
}

// ownerOf returns the UID of the object that owns an object, or from which it inherits otherwise.
func (h *history) ownerOf(object *unstructured.Unstructured) types.UID {
	if set := poolOf(object.GetName()); set != "" && object.GetKind() == "Node" {
		return h.pools[set]
	}
	return controllerOf(object)
}

// inPool returns the names of the instances of a MachinePool.
func (w *World) inPool(set string) []string {
	var names []string
	for _, infra := range w.management.objects("FakeMachinePool") {
		if infra.GetName() == set {
			ids, _, _ := unstructured.NestedStringSlice(infra.Object, "spec", "providerIDList")
			for _, id := range ids {
				names = append(names, strings.TrimPrefix(id, providerID))
			}
		}
	}
	return names
}

// pools plays a provider of MachinePools without Machines: each instance is only a Node. A failed step is tried again in the next second.
type pools struct {
	*World
	client     client.Client
	made       int // the number of instances: a name is never used again
	registered map[string]bool
}

// providePools looks for work every second, until ctx is done.
func (w *World) providePools(ctx context.Context) error {
	by, err := w.management.as(providerUser)
	if err != nil {
		return err
	}
	provider := &pools{World: w, client: by, registered: map[string]bool{}}
	for seen := -1; ctx.Err() == nil; sleep(ctx, time.Second) {
		writes := w.history.writes()
		if writes == seen {
			continue
		}
		done := true
		for _, mp := range w.management.objects("MachinePool") {
			done = (mp.GetDeletionTimestamp() != nil || provider.reconcile(ctx, mp)) && done
		}
		if done {
			seen = writes
		}
	}
	return nil
}

// reconcile takes the next step for a MachinePool, and reports whether no step is left.
func (p *pools) reconcile(ctx context.Context, mp *unstructured.Unstructured) bool {
	set := mp.GetName()
	if !p.exists("FakeMachinePool", set) {
		infra := named("FakeMachinePool", set)
		infra.Object["spec"] = map[string]any{}
		_ = p.client.Create(ctx, infra)
		return false
	}
	names := p.inPool(set)
	replicas, _, _ := unstructured.NestedInt64(mp.Object, "spec", "replicas")
	switch missing := int(replicas) - len(names); {
	case missing < 0:
		return p.report(ctx, set, names[1:])
	case missing > 0:
		p.made++
		return p.report(ctx, set, append(names, fmt.Sprintf("%s-%d", set, p.made)))
	}
	return p.boot(ctx, p.cluster(clusterOf(set)), set, names)
}

// report writes the instances of a MachinePool where Cluster API reads them.
func (p *pools) report(ctx context.Context, set string, names []string) bool {
	ids := []string{}
	for _, name := range names {
		ids = append(ids, providerID+name)
	}
	spec, err := json.Marshal(map[string]any{"spec": map[string]any{"providerIDList": ids}})
	p.history.must(err)
	status, err := json.Marshal(map[string]any{"status": map[string]any{
		"ready": true, "replicas": len(names), "initialization": map[string]any{"provisioned": true},
	}})
	p.history.must(err)
	_ = p.client.Status().Patch(ctx, named("FakeMachinePool", set), client.RawPatch(types.MergePatchType, status))
	_ = p.client.Patch(ctx, named("FakeMachinePool", set), client.RawPatch(types.MergePatchType, spec))
	return false
}

// boot plays the kubelets of new instances, and deletes the Nodes of former instances, as a cloud controller does.
func (p *pools) boot(ctx context.Context, of *cluster, set string, names []string) bool {
	if p.left(awayOf(of.key.Name)) > 0 {
		return false
	}
	done := true
	for _, name := range names {
		if !p.registered[name] {
			p.registered[name] = p.register(ctx, of, name) == nil
			done = done && p.registered[name]
		}
	}
	for _, node := range of.objects("Node") {
		if poolOf(node.GetName()) == set && !slices.Contains(names, node.GetName()) {
			_ = of.admin.Delete(ctx, node)
			done = false
		}
	}
	return done
}
