// SPDX-License-Identifier: Apache-2.0

package kept

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// metadata makes the metadata of an object share what it can. UIDs and versions are its own.
func (s *Shared) metadata(m *metav1.ObjectMeta) {
	s.texts(&m.Name, &m.GenerateName, &m.Namespace)
	m.Labels, m.Annotations = s.textMap(m.Labels), s.textMap(m.Annotations)
	m.OwnerReferences = s.ownerReferences(m.OwnerReferences)
	m.Finalizers = list(s.lists, s.hashOf(m.Finalizers...), m.Finalizers, func(name *string) { s.texts(name) })
	for i := range m.ManagedFields { // Trimmed has made the list
		entry := &m.ManagedFields[i]
		s.texts(&entry.Manager, (*string)(&entry.Operation), &entry.APIVersion, &entry.FieldsType, &entry.Subresource)
		entry.FieldsV1 = s.fieldSet(entry.FieldsV1)
	}
}

func (s *Shared) ownerReferences(of []metav1.OwnerReference) []metav1.OwnerReference {
	uids := make([]string, 0, len(of))
	for _, owner := range of {
		uids = append(uids, string(owner.UID))
	}
	return list(s.owners, s.hashOf(uids...), of, func(owner *metav1.OwnerReference) {
		s.texts(&owner.APIVersion, &owner.Kind, &owner.Name)
	})
}

func (s *Shared) nodeTaints(of []corev1.Taint) []corev1.Taint {
	texts := make([]string, 0, 3*len(of))
	for _, taint := range of {
		texts = append(texts, taint.Key, taint.Value, string(taint.Effect))
	}
	return list(s.taints, s.hashOf(texts...), of, func(taint *corev1.Taint) {
		s.texts(&taint.Key, &taint.Value, (*string)(&taint.Effect))
	})
}

func (s *Shared) machineTaints(of []clusterv1.MachineTaint) []clusterv1.MachineTaint {
	texts := make([]string, 0, 4*len(of))
	for _, taint := range of {
		texts = append(texts, taint.Key, taint.Value, string(taint.Effect), string(taint.Propagation))
	}
	return list(s.typed, s.hashOf(texts...), of, func(taint *clusterv1.MachineTaint) {
		s.texts(&taint.Key, &taint.Value, (*string)(&taint.Effect), (*string)(&taint.Propagation))
	})
}
