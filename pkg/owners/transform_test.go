// SPDX-License-Identifier: Apache-2.0

package owners_test

import (
	"reflect"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// For each kind the cache keeps the fields that the rules, the loop and the ClusterCache read, and drops the largest other fields. A Node
// keeps the labels that rules read, and all annotations, since an API server limits their size.
func TestTransform(t *testing.T) {
	const sent, kept = "spec: {clusterName: c}\nstatus: {observedGeneration: 7, replicas: 3, conditions: [{type: Ready, status: 'True'}]}", "spec: {clusterName: c}\nstatus: {observedGeneration: 7}"
	for _, tc := range []struct {
		object     any
		sent, kept string
	}{
		{&clusterv1.Cluster{}, `
spec: {paused: true, topology: {classRef: {name: cc}, version: v1, variables: [{name: v, value: 1}], controlPlane: {variables: {overrides: [{name: v, value: 1}]}}, workers: {
  machineDeployments: [{name: md, class: w, minReadySeconds: 1, variables: {overrides: [{name: v, value: 1}]}}],
  machinePools: [{name: mp, class: w, minReadySeconds: 2, variables: {overrides: [{name: v, value: 1}]}}]}}}
status: {phase: Provisioned, observedGeneration: 7, initialization: {infrastructureProvisioned: true}}`, `
spec: {paused: true, topology: {classRef: {name: cc}, version: v1, workers: {
  machineDeployments: [{name: md, class: w, minReadySeconds: 1}], machinePools: [{name: mp, class: w, minReadySeconds: 2}]}}}
status: {observedGeneration: 7, initialization: {infrastructureProvisioned: true}}`},
		{&clusterv1.ClusterClass{}, `
spec: {variables: [{name: v, required: true}], workers: {machineDeployments: [{class: w, minReadySeconds: 1}]},
  patches: [{name: p, description: d, enabledIf: e, definitions: [{selector: {kind: K}, jsonPatches: [{op: add, path: /spec/a, value: 1}]}]}]}
status: {observedGeneration: 1, conditions: [{type: VariablesReady, status: 'True'}]}`, `
spec: {workers: {machineDeployments: [{class: w, minReadySeconds: 1}]}, patches: [{name: p, definitions: [{selector: {kind: K}, jsonPatches: [{path: /spec/a}]}]}]}
status: {observedGeneration: 1}`},
		{&clusterv1.MachineDeployment{}, sent, kept},
		{&clusterv1.MachineSet{}, sent, kept},
		{&clusterv1.MachinePool{}, sent, kept},
		{&clusterv1.Machine{}, `
spec: {clusterName: c, providerID: p, infrastructureRef: {kind: K, name: x, apiGroup: g}}
status: {nodeRef: {name: node}, observedGeneration: 7, phase: Running, addresses: [{type: ExternalIP, address: 192.0.2.1}, {type: Hostname, address: h}]}`, `
spec: {clusterName: c, providerID: p, infrastructureRef: {kind: K, name: x, apiGroup: g}}
status: {nodeRef: {name: node}, observedGeneration: 7, addresses: [{type: Hostname, address: h}]}`},
		{&unstructured.Unstructured{}, "{apiVersion: controlplane.cluster.x-k8s.io/v1, kind: Acme, metadata: {name: cp}, status: {ready: true}, spec: {replicas: 3, machineTemplate: {metadata: {labels: {a: b}}}}}", "{apiVersion: controlplane.cluster.x-k8s.io/v1, kind: Acme, metadata: {name: cp}, spec: {machineTemplate: {metadata: {labels: {a: b}}}}}"},
		{&unstructured.Unstructured{}, "{apiVersion: controlplane.cluster.x-k8s.io/v1, kind: WithoutMachines, spec: {replicas: 3}}", "{apiVersion: controlplane.cluster.x-k8s.io/v1, kind: WithoutMachines}"},
		{&unstructured.Unstructured{}, "{apiVersion: controlplane.cluster.x-k8s.io/v1, kind: BreaksTheContract, spec: text}", "{apiVersion: controlplane.cluster.x-k8s.io/v1, kind: BreaksTheContract}"},
		{&unstructured.Unstructured{}, "{apiVersion: infrastructure.cluster.x-k8s.io/v1, kind: AcmeMachine, spec: {size: xl}}", "{apiVersion: infrastructure.cluster.x-k8s.io/v1, kind: AcmeMachine, spec: {size: xl}}"},
		{&corev1.Node{}, `
metadata: {name: n, labels: {l: '1', node.cluster.x-k8s.io/a: '1'}, annotations: {a: '1'}, managedFields: [{manager: m}]}
spec: {providerID: p, podCIDR: 192.0.2.0/24, taints: [{key: t, effect: NoSchedule}]}
status: {images: [{names: [i]}], addresses: [{type: ExternalIP, address: 192.0.2.1}, {type: Hostname, address: n}],
  conditions: [{type: Ready, status: 'True', reason: r, message: m, lastHeartbeatTime: '2026-11-21T12:00:00Z', lastTransitionTime: '2026-11-21T12:00:00Z'}]}`, `
metadata: {name: n, labels: {node.cluster.x-k8s.io/a: '1'}, annotations: {a: '1'}}
spec: {providerID: p, taints: [{key: t, effect: NoSchedule}]}
status: {addresses: [{type: Hostname, address: n}], conditions: [{type: Ready, status: 'True'}]}`},
	} {
		Expect, want, transform := NewWithT(t).Expect, reflect.New(reflect.TypeOf(tc.object).Elem()).Interface(), toolscache.TransformFunc(owners.Transform)
		if _, node := tc.object.(*corev1.Node); node {
			transform = owners.TransformNode(inherit.Policy{})
		}
		Expect(yaml.UnmarshalStrict([]byte(tc.sent), tc.object)).To(Succeed())
		Expect(yaml.UnmarshalStrict([]byte(tc.kept), want)).To(Succeed())
		for range 2 { // as an informer does with its first list
			Expect(transform(tc.object)).To(BeIdenticalTo(tc.object))
			Expect(tc.object).To(Equal(want))
		}
	}
	for _, other := range []any{&corev1.Secret{}, "text"} {
		NewWithT(t).Expect(owners.Transform(other)).To(BeIdenticalTo(other))
		NewWithT(t).Expect(owners.TransformNode(inherit.Policy{})(other)).To(BeIdenticalTo(other))
	}
}

// Of managed fields the cache keeps our entry, and one entry in place of all others: it shows that there are others, and the time of their
// last change.
func TestTransformOfManagedFields(t *testing.T) {
	at := func(seconds int64) *metav1.Time { return new(metav1.Unix(seconds, 0)) }
	others := metav1.ManagedFieldsEntry{Manager: "manager", Operation: "Update", Time: at(60), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}
	status := metav1.ManagedFieldsEntry{Manager: "manager", Operation: "Update", Time: at(90), Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)}
	ours := metav1.ManagedFieldsEntry{Manager: "heirloom", Operation: "Apply", Time: at(90), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:a":{}}}}`)}
	for name, tc := range map[string]struct{ sent, kept []metav1.ManagedFieldsEntry }{
		"ours":         {[]metav1.ManagedFieldsEntry{ours}, []metav1.ManagedFieldsEntry{ours}},
		"both":         {[]metav1.ManagedFieldsEntry{others, ours, status}, []metav1.ManagedFieldsEntry{ours, {Time: at(60)}}},
		"only others'": {[]metav1.ManagedFieldsEntry{others}, []metav1.ManagedFieldsEntry{{Time: at(60)}}},
		"none":         {},
	} {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Unix(1, 0), ManagedFields: tc.sent}}
		for range 2 {
			_, err := owners.Transform(m)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(m.ManagedFields).To(Equal(tc.kept), name)
		}
	}
}
