// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// What an answer brings, takes away and puts back is counted, each label, annotation and taint for itself.
func TestWhatIsInheritedIsCounted(t *testing.T) {
	node := func(taints string) string {
		const record = ";gpu:NoSchedule,old:NoSchedule"
		return "{metadata: {name: node-1, labels: {heirloom.node-restriction.kubernetes.io/record: " + recorded(record) + "}, annotations: {" +
			"cluster.x-k8s.io/taints-from-machine: 'gpu:NoSchedule,old:NoSchedule', heirloom.dev/record-from-machine: '" + record + "'}}, spec: {taints: [" + taints + "]}}"
	}
	const gpu, old = "{key: gpu, effect: NoSchedule}", "{key: old, effect: NoSchedule}"
	withTaint := ordinary.with(func(f *fleet) {
		f.machines = map[string]string{
			"ns/m": "{metadata: {" + bySet + "}, spec: {clusterName: c, taints: [{key: gpu, effect: NoSchedule, propagation: Always}]}, status: {nodeRef: {name: node-1}}}",
		}
	})
	for _, tc := range []struct {
		name        string
		cache       fleet
		request     write
		keys, drift []string
	}{
		{name: "a new Machine", cache: ordinary, request: write{kind: "Machine", object: machine(bySet)}, keys: []string{"admission injected Machine label"}},
		{name: "a Machine that has it all", cache: ordinary, request: write{kind: "Machine", object: machine(bySet + ", labels: {team: a}")}},
		{
			name: "an update that takes a label away", cache: ordinary,
			request: write{kind: "Machine", object: machine(bySet), old: machine(bySet + ", labels: {team: a}")},
			keys:    []string{"admission injected Machine label"}, drift: []string{"admission Machine label"},
		},
		{
			name: "a Node that has one taint too few and one too many", cache: withTaint,
			request: write{kind: "Node", object: node(old), old: node(gpu)},
			keys:    []string{"admission injected Node taint", "admission removed Node taint"}, drift: []string{"admission Node taint"},
		},
		{
			name: "an update that takes nothing away", cache: withTaint,
			request: write{kind: "Node", object: node(""), old: node("")}, keys: []string{"admission injected Node taint"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			s := newServer(t, tc.cache, nil, inherit.Policy{})
			s.asks(t, tc.request.request(t))
			g.Expect(s.countedIn(t, "heirloom_inherited_keys_total")).To(Equal(tc.keys))
			g.Expect(s.countedIn(t, "heirloom_drift_repaired_total")).To(Equal(tc.drift))
		})
	}
}
