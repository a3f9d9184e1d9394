// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Cluster API takes from a child what its owner no longer declares, before our cache has heard of the owner's change. A child
// that has had all and lacks some of it now is therefore looked at with owners as the API server has them.
func TestAChildThatHasLostSomethingIsSeenWithFreshOwners(t *testing.T) {
	lose := func(l *loop, s *scene) {
		l.change(s.child, func() {
			labels := s.child.GetLabels()
			delete(labels, "team")
			s.child.SetLabels(labels)
		})
		l.live.take()
		l.writes.take()
	}
	each(t, func(l *loop, s *scene) {
		for range 2 { // the second time, it has all that it should
			l.Expect(l.see(s.about)).To(Succeed())
		}
		owner := l.kindOf(s.owner).Kind + "/" + s.owner.GetName()
		l.lag(s.owner)

		lose(l, s)
		l.Expect(l.see(s.about)).To(Succeed(), "the owner declares it still")
		l.Expect(l.writes.take()).To(HaveLen(1))
		l.Expect(l.live.take()).To(ContainElement(owner))
		l.Expect(l.stored(s.child).GetLabels()).To(HaveKey("team"))
		l.Expect(l.see(s.about)).To(Succeed())

		lose(l, s)
		l.refuseLive = errors.New("no answer")
		l.Expect(l.see(s.about)).To(Succeed(), "the cache decides")
		l.refuseLive = nil
		l.Expect(l.stored(s.child).GetLabels()).To(HaveKey("team"))
		l.Expect(l.see(s.about)).To(Succeed())

		lose(l, s)
		l.change(s.owner, func() { declare(s.owner) })
		l.Expect(l.see(s.about)).To(Succeed(), "the owner no longer declares it")
		l.Expect(l.live.take()).To(ContainElement(owner))
		l.Expect(l.stored(s.child).GetLabels()).NotTo(HaveKey("team"))
	})
}

// What an owner declares anew, no child has lost: the cache has heard of it, and no API call is made.
func TestWhatIsDeclaredAnewCostsNoFreshOwner(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		for _, labels := range [][]string{{"team=ml"}, {"team=ml", "new=1"}, {"team=another", "new=1"}} {
			l.change(s.owner, func() { declare(s.owner, labels...) })
			for range 2 {
				l.Expect(l.see(s.about)).To(Succeed())
			}
			l.Expect(l.stored(s.child).GetLabels()).To(HaveKeyWithValue("team", pairs(labels...)["team"]))
		}
		l.Expect(l.live.take()).To(BeEmpty())
	})
}

// An owner that has gone, as the API server says, takes nothing away and brings nothing back.
func TestAChildOfAnOwnerThatHasGoneIsLeft(t *testing.T) {
	Expect := NewWithT(t).Expect
	ms, m := machineSet("team=ml"), machine("m", "MachineSet/ms")
	l := newLoop(t, theCluster(), ms, m)
	for range 2 {
		Expect(l.see(m)).To(Succeed())
	}
	l.lag(ms)
	Expect(l.server.Delete(t.Context(), ms)).To(Succeed())
	l.change(m, func() { delete(m.Labels, "team") })
	l.writes.take()
	Expect(l.see(m)).To(Succeed())
	l.wrote()
	Expect(l.live.take()).NotTo(BeEmpty())
}

// The same holds for Nodes, of which all owners up to the topology are read again.
func TestANodeThatHasLostSomethingIsSeenWithFreshOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		const key = "node.cluster.x-k8s.io/pool"
		md, ms, m, n := machineDeployment(key+"=a"), machineSet(key+"=a"), machine("m", "MachineSet/ms"), node("m")
		m.Labels[key] = "a"
		l := newLoop(t, theCluster(), md, ms, m, n)
		see := func() {
			for {
				result, err := l.seeNode(client.ObjectKey{}, n.Name)
				Expect(err).NotTo(HaveOccurred())
				if result.RequeueAfter == 0 {
					return
				}
				Expect(l.live.take()).To(BeEmpty(), "Cluster API may write first")
				<-time.After(result.RequeueAfter)
			}
		}
		see()
		see()
		Expect(l.stored(n).GetLabels()).To(HaveKeyWithValue(key, "a"))
		Expect(l.live.take()).To(BeEmpty())

		l.change(n, func() { delete(n.Labels, key) })
		see()
		Expect(l.stored(n).GetLabels()).To(HaveKeyWithValue(key, "a"), "its owners declare it still")
		Expect(l.live.take()).To(ContainElements("Machine/m", "MachineSet/ms", "MachineDeployment/md"))
		l.told(fmt.Sprintf("Normal DriftRepaired Machine/m: Node m had lost what it inherits: label %q put back", key))
		l.counted(`drift_repaired_total{by="resync",kind="Node",what="label"} 1`)

		for _, owner := range []client.Object{md, ms, m} {
			l.lag(owner)
		}
		l.change(md, func() { declare(md) })
		l.change(ms, func() { declare(ms) })
		l.change(m, func() { delete(m.Labels, key) })
		l.change(n, func() { delete(n.Labels, key) })
		see()
		Expect(l.stored(n).GetLabels()).NotTo(HaveKey(key))
		l.told()
	})
}

// What was left to Cluster API when its owners could have been read anew is not written by the cache alone, even if the time is over
// a moment later.
func TestTimeThatEndsDuringALookBringsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		const key = "node.cluster.x-k8s.io/pool"
		ms, m, n := machineSet(key+"=a"), machine("m", "MachineSet/ms"), node("m")
		m.Labels[key] = "a"
		l := newLoop(t, theCluster(), ms, m, n)
		slow := time.Duration(0)
		rules := l.Policy
		l.Policy = func() inherit.Policy { // which a look asks for again and again
			<-time.After(slow)
			return rules()
		}
		look := func() time.Duration {
			result, err := l.seeNode(client.ObjectKey{}, n.Name)
			Expect(err).NotTo(HaveOccurred())
			return result.RequeueAfter
		}
		for range 2 {
			<-time.After(look())
		}
		Expect(look()).To(BeZero())
		Expect(l.stored(n).GetLabels()).To(HaveKeyWithValue(key, "a"))

		l.lag(ms)
		l.lag(m)
		l.change(ms, func() { declare(ms) })
		l.change(m, func() { delete(m.Labels, key) })
		l.change(n, func() { delete(n.Labels, key) })
		l.writes.take()
		left := look()
		Expect(left).To(BeNumerically(">", 0))
		const asked = 3 // times: at its beginning, by the doubt, and before the write
		slow = 100 * time.Millisecond
		<-time.After(left - (asked-1)*slow - slow/2)
		Expect(look()).To(Equal(slow/2), "it is not over when owners would be read")
		l.wrote()
		slow = 0
		<-time.After(time.Second)
		Expect(look()).To(BeZero())
		Expect(l.live.take()).To(ContainElement("Machine/m"))
		Expect(l.stored(n).GetLabels()).NotTo(HaveKey(key))
	})
}
