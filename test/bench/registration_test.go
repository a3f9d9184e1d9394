// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// kubeletsNode is a Node as a kubelet registers it, with all fields of the status that a kubelet fills in. They are most of a review, and
// both Heirloom's webhook and the no-op webhook have to decode them.
func kubeletsNode(name string) *corev1.Node {
	node := stage.Node(name)
	for _, prefix := range []string{"", "beta."} {
		node.Labels[prefix+corev1.LabelOSStable], node.Labels[prefix+corev1.LabelArchStable] = "linux", "amd64"
	}
	node.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32863088Ki"),
		corev1.ResourceEphemeralStorage: resource.MustParse("81106868Ki"), corev1.ResourcePods: resource.MustParse("110"),
		corev1.ResourceHugePagesPrefix + "1Gi": resource.MustParse("0"), corev1.ResourceHugePagesPrefix + "2Mi": resource.MustParse("0"),
	}
	allocatable := capacity.DeepCopy()
	allocatable[corev1.ResourceMemory] = resource.MustParse("32760688Ki")
	allocatable[corev1.ResourceEphemeralStorage] = resource.MustParse("74748089426")
	node.Status = corev1.NodeStatus{
		Capacity: capacity, Allocatable: allocatable, Conditions: kubeletsConditions(), Images: kubeletsImages(),
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.17.42"}, {Type: corev1.NodeHostName, Address: name}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: "5d9cfa6f8b8b4a0ea6a1ab4eec8f9d2a", SystemUUID: "ec2c1f5e-3a1d-41ab-9c6e-7be4a4f0f4b1", BootID: "0d8f04f1-5b0b-4ae5-8f5a-0f4f5a2b0c7e",
			KernelVersion: "6.8.0-1021-aws", OSImage: "Ubuntu 24.04.2 LTS", ContainerRuntimeVersion: "containerd://2.0.4",
			KubeletVersion: "v1.34.1", OperatingSystem: "linux", Architecture: "amd64", Swap: &corev1.NodeSwapStatus{},
		},
		RuntimeHandlers: []corev1.NodeRuntimeHandler{{Features: &corev1.NodeRuntimeHandlerFeatures{}}, {Name: "runc", Features: &corev1.NodeRuntimeHandlerFeatures{}}},
		Features:        &corev1.NodeFeatures{},
	}
	return node
}

// kubeletsConditions are the conditions of a Node whose network plugin is not ready yet.
func kubeletsConditions() []corev1.NodeCondition {
	condition := func(of corev1.NodeConditionType, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: of, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}
	}
	return []corev1.NodeCondition{
		condition(corev1.NodeMemoryPressure, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		condition(corev1.NodeDiskPressure, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		condition(corev1.NodePIDPressure, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		condition(corev1.NodeReady, "KubeletNotReady", "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "+
			"message:Network plugin returns error: cni plugin not initialized"),
	}
}

// kubeletsImages are the images on a machine image that kubeadm has prepared.
func kubeletsImages() []corev1.ContainerImage {
	var images []corev1.ContainerImage
	for i, name := range []string{
		"etcd:3.6.4-0", "kube-apiserver:v1.34.1", "kube-controller-manager:v1.34.1", "kube-proxy:v1.34.1", "kube-scheduler:v1.34.1",
		"coredns/coredns:v1.12.1", "cloud-provider-aws/cloud-controller-manager:v1.34.0", "provider-aws/aws-ebs-csi-driver:v1.48.0",
		"metrics-server/metrics-server:v0.8.0", "pause:3.10.1",
	} {
		repository, _, _ := strings.Cut("registry.k8s.io/"+name, ":")
		images = append(images, corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%064x", repository, i), "registry.k8s.io/" + name},
			SizeBytes: int64(195_976_448 - i*19_000_000),
		})
	}
	return images
}
