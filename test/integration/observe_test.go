// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// A Cluster that is only observed has no write of Heirloom: neither in the requests of others nor by itself. What is announced there is what
// is written once the Cluster is enforced.
func TestObserve(t *testing.T) {
	t.Parallel()
	s := sharedScene(t)
	f := s.observed("observed")
	cluster, name := f.cluster, f.cluster.Name
	s.Expect(f.ms.Spec.Template.Labels).NotTo(HaveKey("team"))
	s.Expect(f.m.Labels).NotTo(HaveKey("team"))

	s.announced(f.ms, `template label "team"`)
	s.get(f.ms)
	s.Expect(ours(f.ms)).To(BeEmpty())
	events, err := s.audit.events()
	s.Expect(err).NotTo(HaveOccurred())
	for _, event := range events {
		if event.User.Username == stage.ServiceAccount && event.ObjectRef != nil && event.ObjectRef.Namespace == name && event.ObjectRef.Resource != "events" {
			s.Expect(event.Verb).To(BeElementOf("get", "list", "watch"))
		}
	}

	mode := func(mode inherit.Mode) {
		s.get(cluster)
		s.update(cluster, func() { cluster.Labels[inherit.ModeLabel] = string(mode) })
	}
	mode(inherit.Enforce)
	s.eventually(f.ms, func(g Gomega) { g.Expect(f.ms.Spec.Template.Labels).To(HaveKeyWithValue("team", "ml")) })
	s.eventually(f.m, func(g Gomega) { g.Expect(f.m.Labels).To(HaveKeyWithValue("team", "ml")) })

	// Back to observing, everything stays, also what an owner drops.
	mode(inherit.Observe)
	s.get(f.md)
	s.update(f.md, func() { delete(f.md.Spec.Template.Labels, "team") })
	s.announced(f.ms, `would remove label "team", template label "team"`)
	s.get(f.ms)
	s.Expect(f.ms.Spec.Template.Labels).To(HaveKeyWithValue("team", "ml"))
}

// observed settles a family, whose MachineDeployment declares a label, in a Cluster of its own that is only observed.
func (s *scene) observed(name string) family {
	s.t.Helper()
	name = s.own(name)
	s.ensureNamespace(name)
	cluster := stage.Cluster(name, name)
	cluster.Labels = map[string]string{inherit.ModeLabel: string(inherit.Observe)}
	s.create(cluster)
	return s.settleIn(name, name, stage.Declared{Labels: map[string]string{"team": "ml"}})
}

// announced waits until that is announced for an object.
func (s *scene) announced(object client.Object, what string) {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		list := &eventsv1.EventList{}
		g.Expect(s.Client.List(s.ctx, list, client.InNamespace(object.GetNamespace()))).To(Succeed())
		g.Expect(list.Items).To(ContainElement(And(
			HaveField("Reason", "WouldWrite"), HaveField("Regarding.UID", object.GetUID()), HaveField("Note", ContainSubstring(what)),
		)))
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}
