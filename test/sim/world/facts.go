// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// factLabel is the label of Nodes that follows spec.instanceType of their FakeMachines, and factFlag the flag that says so.
const (
	factLabel = "node.example.com/instance-type"
	factFlag  = "--node-fact=FakeMachine.infrastructure.cluster.x-k8s.io:spec.instanceType=" + factLabel
	// noLabel is an instance type that cannot be the value of a label.
	noLabel = "very large!"
)

func drawInstanceType(d draws) Action {
	return Action{N: d.below(16), Value: d.oneOf("small", "large", "", noLabel)}
}

// setInstanceType is a provider that finds out or changes the type of an instance.
func setInstanceType(ctx context.Context, w *World, a Action) {
	machines := w.management.objects("FakeMachine")
	if len(machines) == 0 || !w.options.Facts {
		return
	}
	provider, err := w.management.as(providerUser)
	w.history.must(err)
	var value any
	if a.Value != "" {
		value = a.Value
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"instanceType": value}})
	w.history.must(err)
	w.history.must(client.IgnoreNotFound(provider.Patch(ctx, machines[a.N%len(machines)], client.RawPatch(types.MergePatchType, patch))))
}

// judgeFact checks that the label of a Node is the instance type of its FakeMachine, unless the kubelet had removed the list of inherited
// labels: then the label counts as foreign.
func (w *World) judgeFact(node *unstructured.Unstructured) {
	for _, infra := range w.management.objects("FakeMachine") {
		want, _, _ := unstructured.NestedString(infra.Object, "spec", "instanceType")
		has, name := node.GetLabels()[factLabel], node.GetName()
		if want == noLabel {
			want = ""
		}
		if infra.GetName() == name && has != want && !w.history.blind[name] && (has == "" || !w.mayStay("Node", node, "label "+factLabel+"="+has)) {
			w.history.violated("Node %s ends with %s=%s, and the instance has type %s=%s", name, factLabel, has, factLabel, want)
		}
	}
}
