// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"crypto/sha256"
	"fmt"
	"testing"
)

// recorded returns the value of the label for this record.
func recorded(record string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(record)))[:32]
}

// withTaint is the control plane Machine of node-1, with a taint.
const withTaint = "{metadata: {" + bySet + ", labels: {cluster.x-k8s.io/control-plane: ''}}, " +
	"spec: {clusterName: c, taints: [{key: gpu, effect: NoSchedule, propagation: Always}]}, status: {nodeRef: {name: node-1}}}"

func TestNodes(t *testing.T) {
	const kubelet = "system:node:node-1"
	node := func(rest string) string { return "{metadata: {name: node-1" + rest + "}, spec: {}}" }
	tainted := func(taints string) string {
		return "{metadata: {name: node-1, labels: {heirloom.node-restriction.kubernetes.io/record: " + recorded(";gpu:NoSchedule") + "}, " +
			"annotations: {cluster.x-k8s.io/taints-from-machine: 'gpu:NoSchedule', heirloom.dev/record-from-machine: ';gpu:NoSchedule'}}, spec: {taints: [" + taints + "]}}"
	}
	gpu := "{key: gpu, effect: NoSchedule}"
	// A worker with a label that a kubelet may set and a label that it may not set.
	labeled := fleet{clusters: ordinary.clusters, sets: ordinary.sets, machines: map[string]string{
		"ns/m": "{metadata: {" + bySet + ", labels: {node.cluster.x-k8s.io/a: '1', node-role.kubernetes.io/gpu: ''}}, spec: {clusterName: c}, status: {nodeRef: {name: node-1}}}",
	}}
	gpuDeclared := ordinary.with(func(f *fleet) { f.machines = map[string]string{"ns/m": withTaint} })
	registers := []string{
		`{"op":"add","path":"/metadata/labels","value":{"node.cluster.x-k8s.io/a":"1"}}`,
		`{"op":"add","path":"/metadata/annotations","value":{"cluster.x-k8s.io/labels-from-machine":"node.cluster.x-k8s.io/a","cluster.x-k8s.io/taints-from-machine":"","heirloom.dev/uninitialized":"added"}}`,
		`{"op":"add","path":"/spec/taints","value":[{"key":"node.cluster.x-k8s.io/uninitialized","effect":"NoSchedule"}]}`,
	}
	for _, tc := range []childCase{
		{name: "a kubelet that registers gets what NodeRestriction accepts, and the guard", cache: labeled, request: write{kind: "Node", user: kubelet, object: node("")}, want: registers, outcome: "injected"},
		{name: "somebody who may brings the rest and takes the guard away", cache: labeled, request: write{
			kind:   "Node",
			object: "{metadata: {name: node-1, annotations: {heirloom.dev/uninitialized: added, cluster.x-k8s.io/taints-from-machine: ''}}, spec: {taints: [{key: node.cluster.x-k8s.io/uninitialized, effect: NoSchedule}]}}",
			old:    node(""),
		}, want: []string{
			`{"op":"add","path":"/metadata/labels","value":{"heirloom.node-restriction.kubernetes.io/record":"` + recorded("node-role.kubernetes.io/gpu;") + `","node-role.kubernetes.io/gpu":"","node.cluster.x-k8s.io/a":"1"}}`,
			`{"op":"add","path":"/metadata/annotations","value":{"cluster.x-k8s.io/labels-from-machine":"node-role.kubernetes.io/gpu,node.cluster.x-k8s.io/a","cluster.x-k8s.io/taints-from-machine":"","heirloom.dev/record-from-machine":"node-role.kubernetes.io/gpu;"}}`,
			`{"op":"add","path":"/spec/taints","value":[]}`,
		}, outcome: "injected"},
		{name: "a kubelet's update is not touched", cache: labeled, request: write{kind: "Node", user: kubelet, object: node(""), old: node(", labels: {node.cluster.x-k8s.io/a: '1'}")}, outcome: "unmatched"},
		{name: "a kubelet that creates another Node is not believed", cache: labeled, request: write{kind: "Node", user: "system:node:other", object: node("")}, outcome: "unmatched"},
		{name: "a user of the kubelets' group that is no kubelet is not believed", cache: labeled, request: write{kind: "Node", user: "mallory", object: node("")}, outcome: "unmatched"},
		{name: "a Node with the label heirloom.dev/ignore inherits all the same", cache: labeled, request: write{kind: "Node", user: kubelet, object: node(", labels: {heirloom.dev/ignore: ''}")}, want: []string{
			`{"op":"add","path":"/metadata/labels","value":{"heirloom.dev/ignore":"","node.cluster.x-k8s.io/a":"1"}}`,
			`{"op":"add","path":"/metadata/annotations","value":{"cluster.x-k8s.io/labels-from-machine":"node.cluster.x-k8s.io/a","cluster.x-k8s.io/taints-from-machine":"","heirloom.dev/uninitialized":"added"}}`,
			`{"op":"add","path":"/spec/taints","value":[{"key":"node.cluster.x-k8s.io/uninitialized","effect":"NoSchedule"}]}`,
		}, outcome: "injected"},
		{name: "a kubelet that says its new Node is being deleted gets the same", cache: labeled, request: write{kind: "Node", user: kubelet, object: node(deleted)}, want: registers, outcome: "injected"},

		{name: "an Always taint that is taken away stays, and that is said with the Machine that declares it", cache: gpuDeclared, request: write{kind: "Node", object: tainted(""), old: tainted(gpu)}, want: []string{`{"op":"add","path":"/spec/taints","value":[{"key":"gpu","effect":"NoSchedule"}]}`}, warnings: []string{`heirloom: taint "gpu:NoSchedule" was kept: the Node inherits it from Machine ns/m; to change it, edit Machine ns/m (spec.taints)`}, outcome: "injected"},
		{name: "a foreign taint may go", cache: gpuDeclared, request: write{kind: "Node", object: tainted(gpu), old: tainted(gpu + ", {key: z, effect: NoExecute}")}, outcome: "unchanged"},
		{name: "it stays even if nobody knows whom to tell", cache: gpuDeclared.with(func(f *fleet) { f.sets = nil }), live: broken.reader(t), request: write{kind: "Node", object: tainted(""), old: tainted(gpu)}, want: []string{`{"op":"add","path":"/spec/taints","value":[{"key":"gpu","effect":"NoSchedule"}]}`}, warnings: []string{"Machine ns/m"}, outcome: "injected"},
		{name: "a label that is taken away stays, and that is said", cache: labeled, request: write{
			kind: "Node",
			object: "{metadata: {name: node-1, labels: {node-role.kubernetes.io/gpu: '', heirloom.node-restriction.kubernetes.io/record: " + recorded("node-role.kubernetes.io/gpu;") + "}, " +
				"annotations: {cluster.x-k8s.io/labels-from-machine: 'node-role.kubernetes.io/gpu,node.cluster.x-k8s.io/a', cluster.x-k8s.io/taints-from-machine: '', heirloom.dev/record-from-machine: 'node-role.kubernetes.io/gpu;'}}}",
			old: "{metadata: {name: node-1, labels: {node-role.kubernetes.io/gpu: '', node.cluster.x-k8s.io/a: '1'}}}",
		}, want: []string{`{"op":"add","path":"/metadata/labels","value":{"heirloom.node-restriction.kubernetes.io/record":"` + recorded("node-role.kubernetes.io/gpu;") + `","node-role.kubernetes.io/gpu":"","node.cluster.x-k8s.io/a":"1"}}`}, warnings: []string{`heirloom: label "node.cluster.x-k8s.io/a" was kept`}, outcome: "injected"},
	} {
		t.Run(tc.name, tc.run)
	}
}
