// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

type decideFunc func() (answer, error)

func (f decideFunc) decide(context.Context, admission.Request) (answer, error) { return f() }

func TestFailOpen(t *testing.T) {
	operation := jsonpatch.NewOperation("add", "/metadata/labels", map[string]string{"a": "1"})
	for _, tc := range []struct {
		name     string
		decide   decideFunc
		patched  bool
		warnings []string
		outcome  metrics.Outcome
	}{
		{name: "a patch is passed on with its warnings", decide: func() (answer, error) {
			return answer{outcome: metrics.Injected, patch: []jsonpatch.Operation{operation}, warnings: []string{"kept"}}, nil
		}, patched: true, warnings: []string{"kept"}, outcome: metrics.Injected},
		{
			name:    "an error is allowed with a warning",
			decide:  func() (answer, error) { return answer{}, errors.New("the cache is on fire") },
			outcome: metrics.Failed, warnings: []string{"heirloom: the object inherited nothing with this write: the cache is on fire"},
		},
		{
			name: "an error beside a patch is allowed untouched",
			decide: func() (answer, error) {
				return answer{outcome: metrics.Injected, patch: []jsonpatch.Operation{operation}}, errors.New("half done")
			},
			outcome: metrics.Failed, warnings: []string{"heirloom: the object inherited nothing with this write: half done"},
		},
		{
			name:    "a panic is allowed with a warning",
			decide:  func() (answer, error) { panic("index out of range") },
			outcome: metrics.Failed, warnings: []string{"heirloom: the object inherited nothing with this write: internal error: index out of range"},
		},
		{
			// An API server drops a warning with control characters.
			name:    "a warning is one line, whatever the error",
			decide:  func() (answer, error) { return answer{}, errors.Join(errors.New("one"), errors.New("two")) },
			outcome: metrics.Failed, warnings: []string{"heirloom: the object inherited nothing with this write: one; two"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			s := newServer(t, fleet{}, nil, inherit.Policy{})
			response := failOpen{decider: tc.decide, metrics: s.Metrics}.Handle(t.Context(), write{kind: "Machine", object: "{}", old: "{}"}.request(t))
			Expect(response.Allowed).To(BeTrue())
			Expect(len(response.Patches) > 0).To(Equal(tc.patched))
			Expect(response.Warnings).To(HaveExactElements(tc.warnings))
			Expect(s.counted(t)).To(Equal([]string{fmt.Sprintf("Machine UPDATE %s", tc.outcome)}))
		})
	}
}

func TestLeftOutEntriesAreListedOneByOne(t *testing.T) {
	decided := answer{}
	decided.warn(nil)
	NewWithT(t).Expect(decided.warnings).To(BeEmpty())
	decided.warn(errors.Join(errors.New("taint one"), errors.New("taint\ntwo")))
	NewWithT(t).Expect(decided.warnings).To(Equal([]string{"heirloom: not inherited: taint one", "heirloom: not inherited: taint; two"}))

	decided = answer{}
	decided.warn(inherit.Sources{}.Located(errors.Join(slices.Repeat([]error{errors.New("a label")}, 1000)...)))
	NewWithT(t).Expect(decided.warnings).To(HaveLen(11))
	NewWithT(t).Expect(decided.warnings).To(ContainElement("heirloom: not inherited: 990 more"))
}

// deciders returns the deciders by the kind of their objects.
func deciders(d Dependencies) map[string]decider {
	all := decidersOf(d)
	return map[string]decider{
		"ControlPlane": all[PathOf(owners.ControlPlanes)], "MachineDeployment": all[PathOf(owners.MachineDeployments)],
		"MachinePool": all[PathOf(owners.MachinePools)], "MachineSet": all[PathOf(owners.MachineSets)],
		"Machine": all[PathOf(owners.Machines)], "InfraMachine": all[PathOf(owners.ExternalObjects)],
		"Node": all[NodesPath], "Cluster": all[TaintsPath],
	}
}

// Any client that can reach the server can post to it, so posted values must not create new series of metrics.
func TestPostedKindsCreateNoMetrics(t *testing.T) {
	s := newServer(t, fleet{}, nil, inherit.Policy{})
	handler := mux(t, s)
	for i := range 200 {
		req := write{kind: fmt.Sprintf("Kind%d", i), object: "{}", old: "{}"}
		for _, path := range paths {
			ask(t, handler, path, req.review(t))
		}
	}
	kinds := map[string]bool{}
	for _, counted := range s.counted(t) {
		kinds[strings.Fields(counted)[0]] = true
	}
	NewWithT(t).Expect(len(kinds)).To(BeNumerically("<", 20))
}

// With --namespace, objects of other namespaces belong to another instance: no answer fails because they are not cached.
func TestOtherNamespacesAreUnmatched(t *testing.T) {
	for namespace, want := range map[string]metrics.Outcome{"mine": metrics.Failed, "other": metrics.Unmatched, "": metrics.Failed} {
		h := failOpen{decider: taints{Dependencies{Policy: func() inherit.Policy { return inherit.Policy{} }}}, watches: func(namespace string) bool { return namespace == "mine" }}
		req := admission.Request{}
		req.Namespace = namespace
		decided, err := h.guarded(t.Context(), req)
		if err != nil {
			decided.outcome = metrics.Failed // the request has no object
		}
		NewWithT(t).Expect(decided.outcome).To(Equal(want), "namespace %q", namespace)
	}
}

// API servers silently drop too many warnings.
func TestManyWarningsAreSummedUp(t *testing.T) {
	for count, want := range map[int]string{0: "", 1: "1", 10: "1 2 3 4 5 6 7 8 9 10", 12: "1 2 3 4 5 6 7 8 9 10 heirloom: the same applies to 2 more entries"} {
		kept := make([]int, count)
		for i := range kept {
			kept[i] = i + 1
		}
		NewWithT(t).Expect(strings.Join(warnings(kept, strconv.Itoa), " ")).To(Equal(want))
	}
}

// Metrics count the entries that an answer adds, removes and restores, each label, annotation and taint by itself.
func TestInheritedEntriesAreCounted(t *testing.T) {
	const record, gpu, old = ";gpu:NoSchedule,old:NoSchedule", "{key: gpu, effect: NoSchedule}", "{key: old, effect: NoSchedule}"
	node := func(taints string) string {
		return "{metadata: {name: node-1, labels: {heirloom.node-restriction.kubernetes.io/record: " + recorded(record) + "}, annotations: {" +
			"cluster.x-k8s.io/taints-from-machine: 'gpu:NoSchedule,old:NoSchedule', heirloom.dev/record-from-machine: '" + record + "'}}, spec: {taints: [" + taints + "]}}"
	}
	s, g := newServer(t, ordinary.with(func(f *fleet) { f.machines = map[string]string{"ns/m": withTaint} }), nil, inherit.Policy{}), NewWithT(t)
	s.asks(t, write{kind: "Machine", object: machine(bySet + ", labels: {team: a}")}.request(t))
	g.Expect(s.countedIn(t, "heirloom_inherited_keys_total")).To(BeEmpty())
	s.asks(t, write{kind: "Node", object: node(""), old: node("")}.request(t))
	g.Expect(s.countedIn(t, "heirloom_drift_repaired_total")).To(BeEmpty(), "the update takes nothing away")
	s.asks(t, write{kind: "Node", object: node(old), old: node(gpu)}.request(t))
	g.Expect(s.countedIn(t, "heirloom_inherited_keys_total")).To(ConsistOf(
		"injected Node taint admission", "injected Node taint admission", "removed Node taint admission"))
	g.Expect(s.countedIn(t, "heirloom_drift_repaired_total")).To(ConsistOf("Node taint admission"))
}

// A write in a Cluster in observe mode passes unchanged, and counts as observed.
func TestObservedWritesPassUnchanged(t *testing.T) {
	Expect, s := NewWithT(t).Expect, newServer(t, ordinary, nil, inherit.Policy{Mode: inherit.Observe})
	response := s.asks(t, write{kind: "Machine", object: machine(bySet)}.request(t))
	Expect(response.Allowed).To(BeTrue())
	Expect(response.Patches).To(BeEmpty())
	Expect(response.Warnings).To(BeEmpty())
	Expect(s.counted(t)).To(Equal([]string{"Machine CREATE observed"}))
	Expect(s.countedIn(t, "heirloom_inherited_keys_total")).To(BeEmpty())
}

// In observe mode, a wrong taint is a warning.
func TestWrongTaintsAreOnlyObserved(t *testing.T) {
	s := newServer(t, fleet{}, nil, inherit.Policy{Mode: inherit.Observe})
	req := write{kind: "Machine", object: "{spec: {taints: [{key: a, effect: Never, propagation: Always}]}}"}.request(t)
	response := failOpen{decider: taints{s.Dependencies}, metrics: s.Metrics}.Handle(t.Context(), req)
	NewWithT(t).Expect(response.Allowed).To(BeTrue())
	NewWithT(t).Expect(response.Warnings).To(ContainElement(HavePrefix("heirloom: would be refused if Heirloom did not only observe here: ")))
}
