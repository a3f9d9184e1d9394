// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// create returns the request of an API server for an object that Cluster API creates.
func create(kind string, object client.Object) admissionv1.AdmissionRequest {
	gvk := clusterv1.GroupVersion.WithKind(kind)
	if kind == "Node" {
		gvk = corev1.SchemeGroupVersion.WithKind(kind)
	}
	object.GetObjectKind().SetGroupVersionKind(gvk) // an API server sends the kind
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	return admissionv1.AdmissionRequest{
		UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Operation: admissionv1.Create, Namespace: object.GetNamespace(), Name: object.GetName(),
		Kind: metav1.GroupVersionKind(gvk), RequestKind: new(metav1.GroupVersionKind(gvk)),
		Resource: metav1.GroupVersionResource(resource), RequestResource: new(metav1.GroupVersionResource(resource)),
		UserInfo: clusterAPI(), DryRun: new(false), Object: runtime.RawExtension{Raw: encode(object)},
		Options: runtime.RawExtension{Raw: []byte(`{"kind":"PatchOptions","apiVersion":"meta.k8s.io/v1","force":true,"fieldManager":"capi-machineset"}`)},
	}
}

func encode(object any) []byte {
	encoded, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return encoded
}

func update(kind string, object, old client.Object) admissionv1.AdmissionRequest {
	request := create(kind, object)
	request.Operation, request.OldObject = admissionv1.Update, runtime.RawExtension{Raw: encode(old)}
	return request
}

// registering returns the request of a kubelet that creates its Node.
func registering(node *corev1.Node) admissionv1.AdmissionRequest {
	return by(authenticationv1.UserInfo{Username: "system:node:" + node.Name, Groups: []string{"system:nodes"}}, create("Node", node))
}

func by(user authenticationv1.UserInfo, request admissionv1.AdmissionRequest) admissionv1.AdmissionRequest {
	request.UserInfo = user
	return request
}

// clusterAPI returns the user info of Cluster API's manager in a request.
func clusterAPI() authenticationv1.UserInfo {
	return authenticationv1.UserInfo{
		Username: "system:serviceaccount:capi-system:capi-manager", UID: "5f1f3a3e-3d0b-4a4c-9a4e-8a4f4c1f9d11",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:capi-system", "system:authenticated"},
		Extra: map[string]authenticationv1.ExtraValue{
			"authentication.kubernetes.io/credential-id": {"JTI=0c7b2f0e-6c86-4b0f-9d5f-3f6c1f2b7a55"},
			"authentication.kubernetes.io/node-name":     {"management-1"},
			"authentication.kubernetes.io/node-uid":      {"6c1f6f0e-2f61-4ad2-8d0d-3a2f1d7a9b02"},
			"authentication.kubernetes.io/pod-name":      {"capi-controller-manager-6d5f6c9b7d-x8k2p"},
			"authentication.kubernetes.io/pod-uid":       {"2d9b7c4e-8c7b-4f6e-a1de-7b7f1f0c5e21"},
		},
	}
}

// sentByClusterAPI adds the fields that the API server adds to a new Machine of a Cluster API apply before it calls the webhooks.
func sentByClusterAPI(machine *clusterv1.Machine) *clusterv1.Machine {
	machine.UID, machine.Generation, machine.CreationTimestamp = types.UID("9b1c7a52-7e0f-4f7a-8b1f-0a5a7d8e6c11"), 1, metav1.Now()
	machine.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "capi-machineset", Operation: metav1.ManagedFieldsOperationApply, APIVersion: clusterv1.GroupVersion.String(),
		Time: new(metav1.Now()), FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:cluster.x-k8s.io/cluster-name":{},"f:cluster.x-k8s.io/deployment-name":{},` +
			`"f:machine-template-hash":{}},"f:ownerReferences":{"k:{\"uid\":\"` + string(machine.OwnerReferences[0].UID) + `\"}":{}}},` +
			`"f:spec":{"f:bootstrap":{"f:dataSecretName":{}},"f:clusterName":{},"f:infrastructureRef":{"f:apiGroup":{},"f:kind":{},"f:name":{}},` +
			`"f:providerID":{}}}`),
	}}
	return machine
}

// sentByKubelet adds the fields that the API server adds to a kubelet's Node before it calls the webhooks.
func sentByKubelet(node *corev1.Node) *corev1.Node {
	node.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: new(metav1.Now()), FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},"f:volumes.kubernetes.io/controller-managed-attach-detach":{}},` +
			`"f:labels":{".":{},"f:beta.kubernetes.io/arch":{},"f:beta.kubernetes.io/os":{},"f:kubernetes.io/arch":{},"f:kubernetes.io/hostname":{},` +
			`"f:kubernetes.io/os":{}}},"f:spec":{"f:providerID":{}}}`),
	}}
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
	return node
}
