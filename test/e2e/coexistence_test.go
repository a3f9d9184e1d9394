// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/heirloom-dev/heirloom/test/clusterapi"
)

// Beside Cluster API's own controllers, every object of the chain ends as without Heirloom, apart from what only Heirloom
// promises; nothing moves that would not move anyway. It makes no difference whether Heirloom comes before or after, and
// none is left when it has gone.
//
// There are two pairs of worlds. What is played in one pair is played one after the other, as each needs how the one before
// ends. It is not parallel with other tests: two pairs are as much as two cores and the inotify instances of one user can bear.
func TestCoexistence(t *testing.T) {
	t.Run("MachineTaintPropagation=false", func(t *testing.T) {
		t.Parallel()
		testGateOff(t)
	})
	t.Run("MachineTaintPropagation=switched", func(t *testing.T) {
		t.Parallel()
		testGateSwitched(t)
	})
}

// testGateOff begins with two worlds without Heirloom.
func testGateOff(t *testing.T) {
	// Of a leader that is killed, the next one has to wait for the end of the lease.
	s := setting{
		Options: clusterapi.Options{Kubeadm: true},
		args:    []string{"--leader-elect-lease-duration=30s", "--leader-elect-renew-deadline=25s"},
	}
	p := newPair(t, s)
	p.play("ComingAndGoing", comeAndGo)
	p.play("HeirloomComesLater", func(p *pair) {
		p.together.Expect(p.together.StartHeirloom(p.together.ctx)).To(Succeed())
		p.expectEqual("Heirloom comes later")
		p.together.Expect(p.together.InstallWebhooks(p.together.ctx, p.together.WebhookURL)).To(Succeed())
		p.do((*world).undeploy)
	})
	var other *management
	p.play("Lives", func(p *pair) {
		of := livesGateOff()
		of.after[0].do = append(of.after[0].do, func(w *world) {
			if w == p.together {
				other = w.another(s) // what comes next would have to wait for it
			}
		})
		p.live(of)
	})
	p.play("MoveAndRestore", func(p *pair) { p.moveAndRestore(other) })
	p.play("TopologyEnds", func(p *pair) { p.endTopology() })
	p.play("HeirloomHasGone", func(p *pair) {
		p.together.Expect(p.together.StopHeirloom()).To(Succeed())
		p.step("Heirloom has gone", func(w *world) { w.relabel("last") })
		p.together.Expect(p.together.StartHeirloom(p.together.ctx)).To(Succeed())
	})
	p.play("OwnerDropsWhatWasRestored", (*pair).dropRestored)
}

// testGateSwitched begins where Heirloom has tracked annotated taints for a while. No Node loses a taint when the gate is
// switched, Heirloom and Cluster API go on to read what the other wrote, and what Heirloom makes of annotated taints while the
// gate is on keeps nobody from writing anything once it is off.
func testGateSwitched(t *testing.T) {
	p := newPair(t, setting{
		Options: clusterapi.Options{Kubeadm: true}, heirloom: true,
		args: []string{"--sync-period=15s"}, // the gate is asked for as often as objects are looked at again
	})
	p.do(func(w *world) {
		w.deploy(declared())
		w.addLonely("", declared())
	})
	p.expectEqual("create, the gate is off")
	p.together.eventuallyEachNode(func(g Gomega, node corev1.Node) { tracked(g, node, "", alwaysAnnotated) })
	recorder := p.together.recordNodes()
	p.play("GateSwitchedOn", func(p *pair) {
		p.switchOn(recorder)
		p.do(func(w *world) { w.dropLonely("") })
	})
	p.play("Lives", func(p *pair) { p.live(livesGateOn()) })
	p.play("HeirloomHasGoneAndComesLater", (*pair).goAndComeLater)
	p.play("QuietMinute", func(p *pair) { p.together.expectStill() })
	p.play("TopologyEnds", func(p *pair) {
		p.do(func(w *world) { w.dropLonely("typed-") })
		p.endTopology(func(w *world) { w.addLonely("", declared()) })
	})
	p.play("GateSwitchedOff", func(p *pair) { p.switchOff(recorder) })
	for _, w := range []*world{p.alone, p.together} {
		w.Expect(w.read(filepath.Join(w.dir, "core.log"))).NotTo(ContainSubstring("invalid taint format"))
	}
}

// endTopology takes the managed Cluster away, part by part, while something else is done at last.
func (p *pair) endTopology(last ...func(*world)) {
	p.step("without the MachineDeployment", (*world).withoutMachineDeployment)
	p.step("what is left of the managed Cluster", append(last, (*world).demolish)...)
	p.expectSameCreations()
}

// goAndComeLater stops Heirloom, lets Machines come without it, and starts it again.
func (p *pair) goAndComeLater() {
	p.together.Expect(p.together.StopHeirloom()).To(Succeed())
	p.step("Heirloom has gone", func(w *world) { w.relabel("last") }, func(w *world) { w.deleteMachine("workers-") })
	p.together.Expect(p.together.StartHeirloom(p.together.ctx)).To(Succeed())
	p.expectEqual("Heirloom comes later")
}
