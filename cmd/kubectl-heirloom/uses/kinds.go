// SPDX-License-Identifier: Apache-2.0

package uses

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// kind is a kind of objects that select Nodes by their labels.
type kind struct {
	name string
	// versions are the groups and versions of the kind. The first that the API server serves is read.
	versions []string
	fields   []field
	// rests reports whether an object has no effect on Nodes, because it has ended, or because other objects stand for it.
	rests func(*unstructured.Unstructured) bool
}

// field is a field that selects Nodes.
type field struct {
	path string
	read func(any) ([]Selector, error)
}

// podSpec returns the fields of a Pod's spec at a path.
func podSpec(path string) (fields []field) {
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution[]", "preferredDuringSchedulingIgnoredDuringExecution[]"
	for _, f := range []field{
		{"nodeSelector", decoded(ofMap)}, {"affinity.nodeAffinity", decoded(ofNodeAffinity)},
		{"topologySpreadConstraints[]", decoded(ofSpread)},
		{"affinity.podAffinity." + required, decoded(ofPodTerm)}, {"affinity.podAffinity." + preferred, decoded(ofWeightedPodTerm)},
		{"affinity.podAntiAffinity." + required, decoded(ofPodTerm)}, {"affinity.podAntiAffinity." + preferred, decoded(ofWeightedPodTerm)},
	} {
		fields = append(fields, field{path + "." + f.path, f.read})
	}
	return fields
}

// fieldsOf returns fields that are read alike.
func fieldsOf(read func(any) ([]Selector, error), paths ...string) (fields []field) {
	for _, path := range paths {
		fields = append(fields, field{path, read})
	}
	return fields
}

// kinds are the kinds that are known to select Nodes. Pods come after the objects that create them.
//
//nolint:gochecknoglobals // a table that nothing changes
var kinds = func() []kind {
	const template = "spec.template.spec"
	apps, batch := []string{"apps/v1"}, []string{"batch/v1"}
	calico := []string{"projectcalico.org/v3", "crd.projectcalico.org/v1"} // the first is served by an API server that stores the second
	cilium, metallb := []string{"cilium.io/v2", "cilium.io/v2alpha1"}, []string{"metallb.io/v1beta2", "metallb.io/v1beta1"}
	selector, selectors, byMap := decoded(ofLabelSelector), decoded(ofLabelSelectors), decoded(ofMap)
	nodes := fieldsOf(selector, "spec.nodeSelector")
	return []kind{
		{name: "Deployment", versions: apps, fields: podSpec(template)},
		{name: "StatefulSet", versions: apps, fields: podSpec(template)},
		{name: "DaemonSet", versions: apps, fields: podSpec(template)},
		{name: "ReplicaSet", versions: apps, fields: podSpec(template), rests: owned},
		{name: "CronJob", versions: batch, fields: podSpec("spec.jobTemplate." + template)},
		{name: "Job", versions: batch, fields: podSpec(template), rests: finished},
		{name: "Pod", versions: []string{"v1"}, fields: podSpec("spec"), rests: ended},
		{name: "PersistentVolume", versions: []string{"v1"}, fields: fieldsOf(decoded(ofNodeSelector), "spec.nodeAffinity.required")},
		{name: "StorageClass", versions: []string{"storage.k8s.io/v1"}, fields: fieldsOf(decoded(ofTopologies), "allowedTopologies")},
		{name: "RuntimeClass", versions: []string{"node.k8s.io/v1"}, fields: fieldsOf(byMap, "scheduling.nodeSelector")},

		{name: "BGPPeer", versions: calico, fields: fieldsOf(decoded(ofCalico), "spec.nodeSelector", "spec.peerSelector")},
		{name: "IPPool", versions: calico, fields: fieldsOf(decoded(ofCalico), "spec.nodeSelector")},
		{name: "KubeControllersConfiguration", versions: calico, fields: fieldsOf(decoded(ofCalico), "spec.controllers.node.hostEndpoint.templates[].nodeSelector")},

		{name: "CiliumBGPClusterConfig", versions: cilium, fields: nodes},
		{name: "CiliumBGPPeeringPolicy", versions: cilium, fields: nodes},
		{name: "CiliumL2AnnouncementPolicy", versions: cilium, fields: nodes},
		{name: "CiliumNodeConfig", versions: cilium, fields: nodes},
		{name: "CiliumEgressGatewayPolicy", versions: cilium, fields: fieldsOf(selector,
			"spec.selectors[].nodeSelector", "spec.egressGateway.nodeSelector", "spec.egressGateways[].nodeSelector")},
		{name: "CiliumClusterwideNetworkPolicy", versions: cilium, fields: fieldsOf(selector, "spec.nodeSelector", "specs[].nodeSelector")},

		{name: "L2Advertisement", versions: metallb, fields: fieldsOf(selectors, "spec.nodeSelectors")},
		{name: "BGPAdvertisement", versions: metallb, fields: fieldsOf(selectors, "spec.nodeSelectors")},
		{name: "BGPPeer", versions: metallb, fields: fieldsOf(selectors, "spec.nodeSelectors")},

		{name: "NodePool", versions: []string{"karpenter.sh/v1", "karpenter.sh/v1beta1"}, fields: append(
			fieldsOf(byMap, "spec.template.metadata.labels"), fieldsOf(decoded(ofRequirements), template+".requirements")...)},
		{name: "SriovNetworkNodePolicy", versions: []string{"sriovnetwork.openshift.io/v1"}, fields: fieldsOf(byMap, "spec.nodeSelector")},
		{name: "NVIDIADriver", versions: []string{"nvidia.com/v1alpha1"}, fields: append(
			fieldsOf(byMap, "spec.nodeSelector"), fieldsOf(decoded(ofNodeAffinity), "spec.nodeAffinity")...)},
	}
}()

// owned reports whether a controller has made the object. The Pods of an owned ReplicaSet stand for it: it may be of an old revision.
func owned(u *unstructured.Unstructured) bool { return metav1.GetControllerOfNoCopy(u) != nil }

// finished reports whether a Job has ended.
func finished(u *unstructured.Unstructured) (done bool) {
	walk(u.Object, strings.Split("status.conditions[]", "."), "", func(_ string, value any) {
		condition, _ := value.(map[string]any)
		done = done || (condition["type"] == "Complete" || condition["type"] == "Failed") && condition["status"] == "True"
	})
	return done
}

// ended reports whether a Pod has ended.
func ended(u *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	return phase == "Succeeded" || phase == "Failed"
}
