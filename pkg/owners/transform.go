// SPDX-License-Identifier: Apache-2.0

package owners

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// Transform returns the cache transform of all kinds except Nodes: it keeps the fields that the rules and the ClusterCache read. No write
// sends a cached object as a whole, so the dropped fields are not lost.
func Transform(policy inherit.Policy) toolscache.TransformFunc {
	return func(object any) (any, error) { return transform(policy, object), nil }
}

func transform(policy inherit.Policy, object any) any {
	o, ok := object.(metav1.Object)
	if !ok {
		return object
	}
	// An informer transforms each object of its first list twice. Trimmed managed fields end with an entry without a manager.
	if entries := o.GetManagedFields(); len(entries) == 0 || entries[len(entries)-1].Manager != "" {
		o.SetManagedFields(managedfields.Trimmed(entries, o.GetCreationTimestamp().Time, inherit.CapacityAnnotations))
	}
	switch o := object.(type) {
	case *clusterv1.Cluster:
		o.Spec.Topology.Variables = nil
		workers := &o.Spec.Topology.Workers
		for i := range workers.MachineDeployments {
			workers.MachineDeployments[i].Variables = clusterv1.MachineDeploymentVariables{}
		}
		for i := range workers.MachinePools {
			workers.MachinePools[i].Variables = clusterv1.MachinePoolVariables{}
		}
		o.Spec.Topology.ControlPlane.Variables = clusterv1.ControlPlaneVariables{}
		o.Status = clusterv1.ClusterStatus{Initialization: o.Status.Initialization, ObservedGeneration: o.Status.ObservedGeneration}
	case *clusterv1.ClusterClass:
		o.Spec.Variables, o.Spec.Patches = nil, inherit.PatchesRead(o.Spec.Patches)
		o.Status = clusterv1.ClusterClassStatus{ObservedGeneration: o.Status.ObservedGeneration}
	case *unstructured.Unstructured:
		trim(policy, o)
	default:
		if kind, ok := childOf(object).rules.(trimmed); ok {
			kind.trim()
		}
	}
	return object
}

// trim drops everything but the metadata, the facts, and the Machine template of a control plane.
func trim(policy inherit.Policy, o *unstructured.Unstructured) {
	kind := o.GroupVersionKind().GroupKind()
	template, found, err := unstructured.NestedFieldNoCopy(o.Object, "spec", "machineTemplate")
	o.Object = policy.OnlyFacts(kind, o.Object)
	if kind.Group == inherit.ControlPlaneGroup && found && err == nil {
		o.Object["spec"] = map[string]any{"machineTemplate": template}
	}
}

// TransformNode returns the cache transform of Nodes. A patch contains only differences, so it does not change the dropped fields. All
// annotations stay, because an API server limits their size.
func TransformNode(policy inherit.Policy) toolscache.TransformFunc {
	return func(object any) (any, error) {
		node, ok := object.(*corev1.Node)
		if !ok {
			return object, nil
		}
		node.ManagedFields, node.Labels = nil, policy.LabelsRead(node)
		node.Spec = corev1.NodeSpec{ProviderID: node.Spec.ProviderID, Taints: node.Spec.Taints}
		conditions := node.Status.Conditions
		node.Status = corev1.NodeStatus{Addresses: inherit.NodeAddresses(node), Allocatable: inherit.AllocatableRead(node)}
		for _, c := range conditions { // heartbeats change the other fields
			kept := corev1.NodeCondition{Type: c.Type, Status: c.Status}
			if c.Type == corev1.NodeReady { // a roll-out of taints that evict Pods halts when Nodes stop being ready
				kept.LastTransitionTime = c.LastTransitionTime
			}
			node.Status.Conditions = append(node.Status.Conditions, kept)
		}
		return node, nil
	}
}
