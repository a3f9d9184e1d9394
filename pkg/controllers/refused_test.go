// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// refusals are what an API server may answer to a write, and whether somebody has to be told.
func refusals() []refusal {
	resource := schema.GroupResource{Resource: "things"}
	return []refusal{
		{"it is forbidden", apierrors.NewForbidden(resource, "x", errors.New("no rights")), "error", true},
		{"it is invalid", apierrors.NewBadRequest("no such field"), "error", true},
		{"the object has changed", apierrors.NewConflict(resource, "x", errors.New("changed")), "conflict", false},
		{"the object has gone", apierrors.NewNotFound(resource, "x"), "error", false},
	}
}

type refusal struct {
	name   string
	err    error
	result string
	tells  bool
}

// A write that is refused is tried again, counted, and told on the object unless it mends itself.
func TestAWriteThatIsRefused(t *testing.T) {
	for _, tc := range refusals() {
		t.Run(tc.name, func(t *testing.T) {
			each(t, func(l *loop, s *scene) {
				kind, name := l.kindOf(s.child).Kind, s.child.GetName()
				expect := func(times int, what string) {
					l.refuse = tc.err
					err := l.see(s.about)
					l.Expect(err).To(MatchError(tc.err))
					l.Expect(err).To(MatchError(ContainSubstring(what + " what the " + kind + " inherits")))
					l.Expect(l.writes.take()).To(HaveLen(1))
					l.counted(fmt.Sprintf(`resync_writes_total{kind="%s",reason="ahead",result="%s"} %d`, s.kind, tc.result, times))
					l.Expect(samplesOf(l.t, l.registry)).NotTo(ContainElement(ContainSubstring("removed")))
					if tc.tells {
						l.told(fmt.Sprintf("Warning InheritanceFailed %s/%s: Failed to write what is inherited: %v", kind, name, tc.err))
					} else {
						l.told()
					}
					l.refuse = nil
				}
				expect(1, "applying")
				l.Expect(samplesOf(l.t, l.registry)).NotTo(ContainElement(HavePrefix("inherited_keys_total")), "nothing was brought")
				l.Expect(l.see(s.about)).To(Succeed())
				l.writes.take()
				l.change(s.owner, func() { declare(s.owner) })
				expect(2, "patching")
				l.Expect(l.see(s.about)).To(Succeed())
				l.Expect(l.stored(s.child).GetLabels()).NotTo(HaveKey("team"))
			})
		})
	}
}

// An apply names all that is ours. One that was computed for an older version of the child must not bring back what has gone
// since.
func TestAnApplyHoldsOnlyForTheVersionThatWasSeen(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.lag(s.child)
		l.change(s.child, func() { s.child.SetLabels(with(s.child.GetLabels(), "mine", "yes")) })
		l.Expect(apierrors.IsConflict(l.see(s.about))).To(BeTrue())
		l.Expect(l.writes.take()).To(ConsistOf(ContainSubstring("@999 ")))
		l.Expect(l.stored(s.child).GetLabels()).NotTo(HaveKey("team"))
		l.counted(fmt.Sprintf(`resync_writes_total{kind="%s",reason="ahead",result="conflict"} 1`, s.kind))
		l.told()
	})
}

// What is to be patched away is computed from the object as the API server has it. If that has changed since the cache heard of it, the loop
// looks again, because what has changed may be nothing that wakes it, such as its status.
func TestAPatchHoldsOnlyForTheVersionThatWasSeen(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.Expect(l.see(s.about)).To(Succeed())
		l.writes.take()
		l.change(s.owner, func() { declare(s.owner) })
		l.refuseLive = errors.New("no answer")
		l.Expect(l.see(s.about)).To(MatchError(l.refuseLive))
		l.refuseLive = nil

		l.lag(s.child)
		l.change(s.child, func() { s.child.SetLabels(with(s.child.GetLabels(), "mine", "yes")) })
		l.Expect(apierrors.IsConflict(l.see(s.about))).To(BeTrue())
		l.Expect(l.server.Delete(l.t.Context(), s.child)).To(Succeed())
		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote()
		l.told()
	})
}

// What an API server would refuse in the child is in no write, whatever its kind. The rest comes, and an Event on the child names
// the field in which its owner declares it.
func TestWhatAnAPIServerWouldRefuseIsLeftOut(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		l.change(s.owner, func() { declare(s.owner, "team=ml", "sentence=not a value") })
		l.Expect(l.see(s.about)).To(Succeed())
		l.Expect(l.writes.take()).To(ConsistOf(HaveSuffix(s.body)))
		owner := fmt.Sprintf("%s ns/%s (", l.kindOf(s.owner).Kind, s.owner.GetName())
		if strings.HasPrefix(owner, "MachineSet") {
			owner = "MachineDeployment ns/md (" // which controls it
		}
		l.Expect(l.events.take()).To(ContainElement(And(
			HavePrefix("Warning NotInherited %s/%s: %s", l.kindOf(s.child).Kind, s.child.GetName(), owner),
			ContainSubstring(`metadata.labels): label "sentence"="not a value": an API server would refuse it`),
		)))
		l.Expect(l.see(s.about)).To(Succeed())
		l.wrote()
	})
}

// What an owner declares and its child may not carry is told on the child. The rest comes.
func TestWhatMayNotBeInheritedIsLeftOut(t *testing.T) {
	Expect := NewWithT(t).Expect
	ms := machineSet("team=ml")
	ms.Spec.Template.Spec.Taints = []clusterv1.MachineTaint{
		{Key: "node.cluster.x-k8s.io/uninitialized", Effect: "NoSchedule", Propagation: "Always"},
		{Key: "gpu", Effect: "NoSchedule", Propagation: "Always"},
	}
	ms.Spec.Template.Annotations = map[string]string{taint.AlwaysAnnotation: "broken"}
	m := machine("m", "MachineSet/ms")
	l := newLoop(t, theCluster(), ms, m)
	Expect(l.see(m)).To(Succeed())
	l.wrote(`heirloom applies Machine ns/m@999 {"metadata":{"annotations":{"taints.heirloom.dev/always":"broken"},"labels":{"team":"ml"}},` +
		`"spec":{"taints":[{"effect":"NoSchedule","key":"gpu","propagation":"Always"}]}}`)
	told := l.events.take()
	Expect(told).To(HaveLen(1))
	Expect(told[0]).To(And(HavePrefix("Warning NotInherited Machine/m: "),
		ContainSubstring("node.cluster.x-k8s.io/uninitialized"), ContainSubstring("broken")))
	l.counted(
		`inherited_keys_total{by="resync",change="injected",kind="Machine",what="annotation"} 1`,
		`inherited_keys_total{by="resync",change="injected",kind="Machine",what="label"} 1`,
		`inherited_keys_total{by="resync",change="injected",kind="Machine",what="taint"} 1`,
	)
	Expect(l.see(m)).To(Succeed())
	l.wrote()
	Expect(strings.Join(l.events.take(), "")).To(ContainSubstring("NotInherited"), "it is still left out")
}
