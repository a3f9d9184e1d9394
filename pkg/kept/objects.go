// SPDX-License-Identifier: Apache-2.0

package kept

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownership"
)

// Object is the transform of all kinds but Nodes. It keeps of the managed fields what tells which fields we may remove, of a
// provider's control plane what it declares for its Machines, and of a Machine's addresses those by which its Node may be known.
func (s *Shared) Object(object any) (any, error) {
	o, ok := object.(metav1.Object)
	if !ok {
		return object, nil
	}
	// An informer transforms each object of its first list twice.
	if entries := o.GetManagedFields(); len(entries) == 0 || entries[len(entries)-1].Manager != "" {
		o.SetManagedFields(ownership.Trimmed(entries, o.GetCreationTimestamp().Time, inherit.CapacityAnnotations()))
	}
	switch typed := object.(type) {
	case *unstructured.Unstructured:
		trimControlPlane(typed)
	case *capi.Machine:
		s.machine(typed)
	}
	if accessor, ok := object.(metav1.ObjectMetaAccessor); ok {
		if metadata, ok := accessor.GetObjectMeta().(*metav1.ObjectMeta); ok {
			s.metadata(metadata)
		}
	}
	return object, nil
}

func trimControlPlane(u *unstructured.Unstructured) {
	template, found, err := unstructured.NestedMap(u.Object, "spec", "machineTemplate")
	delete(u.Object, "status")
	delete(u.Object, "spec")
	if found && err == nil {
		u.Object["spec"] = map[string]any{"machineTemplate": template}
	}
}

func (s *Shared) machine(m *capi.Machine) {
	s.texts(&m.APIVersion, &m.Kind, &m.Spec.ClusterName, &m.Spec.ProviderID, &m.Status.NodeRef.Name)
	for _, ref := range []*capi.ObjectRef{&m.Spec.InfrastructureRef, &m.Spec.Bootstrap.ConfigRef} {
		s.texts(&ref.APIGroup, &ref.APIVersion, &ref.Kind, &ref.Name)
	}
	m.Spec.Taints = s.machineTaints(m.Spec.Taints)
	m.Status.Addresses = slices.Clip(inherit.MachineAddresses(m))
	for i := range m.Status.Addresses {
		s.texts((*string)(&m.Status.Addresses[i].Type), &m.Status.Addresses[i].Address)
	}
}

// Node is the transform of Nodes. It keeps metadata, taints, the providerID, and the addresses by which a Machine may know the Node.
// Of labels and annotations it keeps those that are read. A patch names only what differs, so it leaves alone what is not kept.
func (s *Shared) Node(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	node.ManagedFields, node.Labels, node.Annotations = nil, s.policy.LabelsRead(node), s.policy.AnnotationsRead(node)
	node.Spec = corev1.NodeSpec{ProviderID: s.text(node.Spec.ProviderID), Taints: s.nodeTaints(node.Spec.Taints)}
	node.Status = corev1.NodeStatus{Addresses: slices.Clip(inherit.NodeAddresses(node))}
	for i := range node.Status.Addresses {
		s.texts((*string)(&node.Status.Addresses[i].Type), &node.Status.Addresses[i].Address)
	}
	s.metadata(&node.ObjectMeta)
	return node, nil
}
