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
		{name: "what changes nothing is allowed", decide: func() (answer, error) { return answer{outcome: metrics.Unchanged}, nil }, outcome: metrics.Unchanged},
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
			name:    "a panic with an error is, too",
			decide:  func() (answer, error) { var m map[string]string; m["a"] = "b"; return answer{}, nil }, //nolint:staticcheck // the panic is the point
			outcome: metrics.Failed, warnings: []string{"heirloom: the object inherited nothing with this write: internal error: assignment to entry in nil map"},
		},
		{
			// An API server drops a warning that has control characters in it.
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

func TestWhatWasLeftOutIsToldOneByOne(t *testing.T) {
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

// TestWhatCannotBeDecoded: an object that cannot be read is allowed as it came, by every handler.
func TestWhatCannotBeDecoded(t *testing.T) {
	for _, tc := range []struct{ name, object, old, warning string }{
		{name: "no object at all", warning: "has no object"},
		{name: "half an object", object: `{"metadata":{"name":`, warning: `unexpected EOF within "/metadata/name"`},
		{name: "a text", object: `"text"`, warning: "unmarshal JSON string"},
		{name: "a list", object: `[]`, warning: "unmarshal JSON array"},
		{name: "metadata that are a text", object: `{"metadata":"text"}`, warning: "unmarshal JSON string"},
		{name: "labels that are numbers", object: `{"metadata":{"labels":{"a":1}}}`, warning: `unmarshal JSON number into Go string within "/metadata/labels/a"`},
		{name: "a label that comes twice", object: `{"metadata":{"labels":{"a":"1","a":"2"}}}`, warning: "duplicate"},
		{name: "rubbish", object: "\x00\x01\xff", warning: "invalid character"},
		{name: "nothing but depth", object: deep(20_000), warning: "exceeded max depth"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for kind, d := range deciders(newServer(t, fleet{}, nil, inherit.Policy{}).Dependencies) {
				t.Run(kind, func(t *testing.T) {
					Expect := NewWithT(t).Expect
					s := newServer(t, fleet{}, nil, inherit.Policy{})
					req := write{kind: kind}.request(t)
					req.Object.Raw = []byte(tc.object)
					response := failOpen{decider: d, metrics: s.Metrics}.Handle(t.Context(), req)
					Expect(response.Allowed).To(BeTrue())
					Expect(response.Patches).To(BeEmpty())
					Expect(response.Warnings).To(HaveExactElements(And(HavePrefix("heirloom: "), ContainSubstring(tc.warning), Not(ContainSubstring("\n")))))
					Expect(s.counted(t)).To(Equal([]string{kind + " CREATE failed"}))
				})
			}
		})
	}
}

func deep(levels int) string {
	text := make([]byte, 0, 6*levels)
	for range levels {
		text = append(text, `{"a":`...)
	}
	return string(text)
}

// deciders are the deciders by a kind that they are about.
func deciders(d Dependencies) map[string]decider {
	all := decidersOf(d)
	return map[string]decider{
		"ControlPlane": all[PathOf(owners.ControlPlanes)], "MachineDeployment": all[PathOf(owners.MachineDeployments)],
		"MachinePool": all[PathOf(owners.MachinePools)], "MachineSet": all[PathOf(owners.MachineSets)],
		"Machine": all[PathOf(owners.Machines)], "InfraMachine": all[PathOf(owners.ExternalObjects)],
		"Node": all[NodesPath], "Cluster": all[TaintsPath],
	}
}

// Anyone who can reach the server can post to it: what is posted must not become series of metrics without end.
func TestMetricsDoNotGrowWithWhatIsPosted(t *testing.T) {
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

// With --namespace, objects of other namespaces are another instance's: no answer fails because they are not cached.
func TestOtherNamespacesAreUnmatched(t *testing.T) {
	for namespace, want := range map[string]metrics.Outcome{"mine": metrics.Failed, "other": metrics.Unmatched, "": metrics.Failed} {
		h := failOpen{decider: taints{func() inherit.Policy { return inherit.Policy{} }}, namespace: "mine"}
		req := admission.Request{}
		req.Namespace = namespace
		decided, err := h.guarded(t.Context(), req)
		if err != nil {
			decided.outcome = metrics.Failed // there is no object in the request
		}
		NewWithT(t).Expect(decided.outcome).To(Equal(want), "namespace %q", namespace)
	}
}

// API servers drop what is too much, without a word.
func TestManyWarningsAreSummedUp(t *testing.T) {
	for count, want := range map[int]string{0: "", 1: "1", 10: "1 2 3 4 5 6 7 8 9 10", 12: "1 2 3 4 5 6 7 8 9 10 heirloom: the same applies to 2 more entries"} {
		kept := make([]int, count)
		for i := range kept {
			kept[i] = i + 1
		}
		NewWithT(t).Expect(strings.Join(warnings(kept, strconv.Itoa), " ")).To(Equal(want))
	}
}
