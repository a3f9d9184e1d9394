// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// A write in a Cluster that is only observed passes as it is, and what it would have got is counted.
func TestWritesThatAreOnlyObserved(t *testing.T) {
	for name, s := range map[string]server{
		"by default": newServer(t, ordinary, nil, inherit.Policy{Mode: inherit.Observe}),
		"by the label of the Cluster": newServer(t, ordinary.with(func(f *fleet) {
			f.clusters = map[string]string{"ns/c": "{metadata: {labels: {heirloom.dev/mode: observe}}}"}
		}), nil, inherit.Policy{}),
	} {
		t.Run(name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			response := s.asks(t, write{kind: "Machine", object: machine(bySet)}.request(t))
			Expect(response.Allowed).To(BeTrue())
			Expect(response.Patches).To(BeEmpty())
			Expect(response.Warnings).To(BeEmpty())
			Expect(s.counted(t)).To(Equal([]string{"Machine CREATE observed"}))
			Expect(s.countedIn(t, "heirloom_would_write_total")).To(Equal([]string{"Machine label"}))
			Expect(s.countedIn(t, "heirloom_inherited_keys_total")).To(BeEmpty())
		})
	}
}

func TestAClusterThatIsNotEnrolled(t *testing.T) {
	s := newServer(t, ordinary, nil, inherit.Policy{OnlyLabelled: true})
	response := s.asks(t, write{kind: "Machine", object: machine(bySet)}.request(t))
	NewWithT(t).Expect(response.Patches).To(BeEmpty())
	NewWithT(t).Expect(s.counted(t)).To(Equal([]string{"Machine CREATE unmatched"}))
}

// While everything is observed, a wrong taint is a warning.
func TestWrongTaintsAreOnlyObserved(t *testing.T) {
	s := newServer(t, fleet{}, nil, inherit.Policy{Mode: inherit.Observe})
	req := write{kind: "Machine", object: "{spec: {taints: [{key: a, effect: Never, propagation: Always}]}}"}.request(t)
	response := failOpen{decider: taints{s.Policy}, metrics: s.Metrics}.Handle(t.Context(), req)
	NewWithT(t).Expect(response.Allowed).To(BeTrue())
	NewWithT(t).Expect(response.Warnings).To(ContainElement(HavePrefix("heirloom: would be refused (--mode=observe): ")))
}
