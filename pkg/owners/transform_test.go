// SPDX-License-Identifier: Apache-2.0

package owners_test

import (
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// For each kind the cache keeps the fields that the rules, the loop and the ClusterCache read, and drops the largest other fields, of objects of providers everything
// that no fact reads. A Node
// keeps the labels that rules read, and all annotations, since an API server limits their size.
func TestTransform(t *testing.T) {
	policy := inherit.Policy{}
	for _, field := range []string{
		"spec.size", "spec.cores", "spec.disks", "spec.room.door", "spec.room", "spec.text", "status.ready", "metadata.labels['rack']", "spec.absent", "spec.size.unit", "spec.nics[2].name", "spec.nics[0].name",
		"spec.nics[2].port", "spec.nics[9].name", "spec.empty", "spec.matrix[1][0]", "spec.size[0]",
	} {
		policy.Facts = append(policy.Facts, inherit.Fact{Kind: schema.GroupKind{Group: inherit.InfrastructureGroup, Kind: "AcmeMachine"}, Field: field})
	}
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
		{&unstructured.Unstructured{}, "{apiVersion: controlplane.cluster.x-k8s.io/v1, kind: WithoutMachines, metadata: {name: cp}, spec: {replicas: 3}}", "{apiVersion: controlplane.cluster.x-k8s.io/v1, kind: WithoutMachines, metadata: {name: cp}}"},
		{&unstructured.Unstructured{}, "{apiVersion: controlplane.cluster.x-k8s.io/v1, kind: BreaksTheContract, metadata: {name: cp}, spec: text}", "{apiVersion: controlplane.cluster.x-k8s.io/v1, kind: BreaksTheContract, metadata: {name: cp}}"},
		{&unstructured.Unstructured{}, "{apiVersion: infrastructure.cluster.x-k8s.io/v1, kind: OtherMachine, metadata: {name: m, labels: {l: '1'}}, spec: {size: xl}, status: {ready: true}}", "{apiVersion: infrastructure.cluster.x-k8s.io/v1, kind: OtherMachine, metadata: {name: m, labels: {l: '1'}}}"},
		{&unstructured.Unstructured{}, `
{apiVersion: infrastructure.cluster.x-k8s.io/v1, kind: AcmeMachine, metadata: {name: m, labels: {rack: '1'}, annotations: {a: '1'}, ownerReferences: [{kind: Machine, name: m}]},
 spec: {size: xl, cores: 8, disks: [{size: 1}, {size: 2}], room: {door: 1, wall: 2}, empty: [], matrix: [[1], [2, 3]], nics: [{name: a, mac: x}, {name: b}, {name: c, port: {a: b}}], userData: long, text: ` + strings.Repeat("x", 1000) + `}, status: {ready: true, phase: Running}}`, `
{apiVersion: infrastructure.cluster.x-k8s.io/v1, kind: AcmeMachine, metadata: {name: m, labels: {rack: '1'}, annotations: {a: '1'}, ownerReferences: [{kind: Machine, name: m}]},
 spec: {size: xl, cores: 8, disks: {}, room: {door: 1}, empty: [], matrix: [null, [2]], nics: [{name: a}, null, {name: c, port: {}}], text: ` + strings.Repeat("x", 256) + `}, status: {ready: true}}`},
		{&corev1.Node{}, `
metadata: {name: n, labels: {l: '1', node.cluster.x-k8s.io/a: '1'}, annotations: {a: '1'}, managedFields: [{manager: m}]}
spec: {providerID: p, podCIDR: 192.0.2.0/24, taints: [{key: t, effect: NoSchedule}]}
status: {images: [{names: [i]}], allocatable: {cpu: '8', memory: 1Gi, ephemeral-storage: 1Gi, pods: '110', nvidia.com/gpu: '8', amd.com/gpu: '0', hugepages-1Gi: 2Gi}, addresses: [{type: ExternalIP, address: 192.0.2.1}, {type: Hostname, address: n}],
  conditions: [{type: Ready, status: 'True', reason: r, message: m, lastHeartbeatTime: '2026-11-21T12:00:00Z', lastTransitionTime: '2026-11-21T12:00:00Z'}]}`, `
metadata: {name: n, labels: {node.cluster.x-k8s.io/a: '1'}, annotations: {a: '1'}}
spec: {providerID: p, taints: [{key: t, effect: NoSchedule}]}
status: {addresses: [{type: Hostname, address: n}], conditions: [{type: Ready, status: 'True', lastTransitionTime: '2026-11-21T12:00:00Z'}], allocatable: {nvidia.com/gpu: '1', hugepages-1Gi: '1'}}`},
	} {
		Expect, want, transform := NewWithT(t).Expect, reflect.New(reflect.TypeOf(tc.object).Elem()).Interface(), owners.Transform(policy)
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
		NewWithT(t).Expect(owners.Transform(policy)(other)).To(BeIdenticalTo(other))
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
			_, err := owners.Transform(inherit.Policy{})(m)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(m.ManagedFields).To(Equal(tc.kept), name)
		}
	}
}
