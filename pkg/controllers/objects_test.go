// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// All objects are in namespace ns and belong to Cluster c. Each has its name for a UID.

func key(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c"},
		// Somebody has written it since it was created.
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "somebody", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: clusterv1.GroupVersion.String(),
			Time: &metav1.Time{Time: time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)}, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
		}},
	}
}

// ownedBy is like named; owner is "<kind>/<name>" of the controller.
func ownedBy(name, owner string) metav1.ObjectMeta {
	m := named(name)
	kind, ownerName, _ := strings.Cut(owner, "/")
	apiVersion := clusterv1.GroupVersion.String()
	for _, provider := range providerKinds() {
		if provider.Kind == kind {
			apiVersion = provider.GroupVersion().String()
		}
	}
	m.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: apiVersion, Kind: kind, Name: ownerName, UID: types.UID(ownerName), Controller: ptr.To(true)},
	}
	return m
}

// template declares the labels, each as "<key>=<value>".
func template(labels ...string) clusterv1.MachineTemplateSpec {
	return clusterv1.MachineTemplateSpec{ObjectMeta: clusterv1.ObjectMeta{Labels: pairs(labels...)}}
}

func pairs(all ...string) map[string]string {
	m := map[string]string{}
	for _, pair := range all {
		key, value, _ := strings.Cut(pair, "=")
		m[key] = value
	}
	return m
}

func theCluster() *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c"}}
}

func machineDeployment(labels ...string) *clusterv1.MachineDeployment {
	return &clusterv1.MachineDeployment{ObjectMeta: named("md"), Spec: clusterv1.MachineDeploymentSpec{ClusterName: "c", Template: template(labels...)}}
}

func machineSet(labels ...string) *clusterv1.MachineSet {
	return &clusterv1.MachineSet{ObjectMeta: ownedBy("ms", "MachineDeployment/md"), Spec: clusterv1.MachineSetSpec{ClusterName: "c", Template: template(labels...)}}
}

func machinePool(labels ...string) *clusterv1.MachinePool {
	return &clusterv1.MachinePool{
		ObjectMeta: named("mp"),
		Spec:       clusterv1.MachinePoolSpec{ClusterName: "c", Template: template(labels...), ProviderIDList: []string{"id-pooled"}},
	}
}

// machine is one whose Node has the same name. owner is "<kind>/<name>".
func machine(name, owner string) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: ownedBy(name, owner), Spec: clusterv1.MachineSpec{ClusterName: "c", ProviderID: "id-" + name}}
}

func node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: named(name), Spec: corev1.NodeSpec{ProviderID: "id-" + name}}
	n.Namespace, n.Labels = "", nil
	return n
}

// provider is a control plane, InfraMachine or BootstrapConfig with that metadata.
func provider(kind string, metadata metav1.ObjectMeta) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	for _, gvk := range providerKinds() {
		if gvk.Kind == kind {
			object.SetGroupVersionKind(gvk)
		}
	}
	object.SetNamespace(metadata.Namespace)
	object.SetName(metadata.Name)
	object.SetUID(metadata.UID)
	object.SetCreationTimestamp(metadata.CreationTimestamp)
	object.SetLabels(metadata.Labels)
	object.SetOwnerReferences(metadata.OwnerReferences)
	object.SetManagedFields(metadata.ManagedFields)
	return object
}
