// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// handled makes an owner one whose controller has handled so many of its generations.
func handled[T interface {
	client.Object
	*clusterv1.MachineSet | *clusterv1.MachineDeployment | *clusterv1.MachinePool
}](owner T, generation, observed int64) T {
	owner.SetGeneration(generation)
	switch o := any(owner).(type) {
	case *clusterv1.MachineDeployment:
		o.Status.ObservedGeneration = observed
	case *clusterv1.MachineSet:
		o.Status.ObservedGeneration = observed
	case *clusterv1.MachinePool:
		o.Status.ObservedGeneration = observed
	}
	return owner
}

// againAt makes the loop look at an object, and returns when it wants to look again.
func (l *loop) againAt(object client.Object, controller string) time.Duration {
	l.t.Helper()
	result, err := l.controller(controller).Reconcile(l.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)})
	l.Expect(err).NotTo(HaveOccurred())
	return result.RequeueAfter
}

// What a controller of Cluster API is about to write is left to it, without any request, for as long as it gets somewhere.
func TestWhatClusterAPIIsAboutToWriteIsLeftToIt(t *testing.T) {
	for _, tc := range []struct {
		name, controller string
		owner, child     client.Object
	}{
		{"a MachineSet", "machineset", handled(machineDeployment("team=ml"), 3, 2), machineSet()},
		{"a Machine of a MachineSet", "machine", handled(machineSet("team=ml"), 3, 2), machine("m", "MachineSet/ms")},
		{"a Machine of a MachinePool", "machine", handled(machinePool("team=ml"), 3, 2), machine("m", "MachinePool/mp")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLoop(t, theCluster(), tc.owner, tc.child)
				l.Expect(l.againAt(tc.child, tc.controller)).To(Equal(10 * time.Second))
				<-time.After(4 * time.Second)
				l.Expect(l.againAt(tc.child, tc.controller)).To(Equal(6 * time.Second))
				l.wrote()
				l.Expect(l.live.take()).To(BeEmpty())

				<-time.After(6 * time.Second)
				l.Expect(l.againAt(tc.child, tc.controller)).To(BeZero())
				l.Expect(l.writes.take()).To(HaveLen(1), "the controller gets nowhere")
				l.counted(`resync_writes_total{kind="` + l.kindOf(tc.child).Kind + `",reason="late",result="applied"} 1`)
			})
		})
	}
}

// So are the external objects of a Machine.
func TestExternalObjectsAreLeftToClusterAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := withExternal("FakeMachine")
		l := newLoop(t, theCluster(), handled(machineSet("team=ml"), 3, 2), m, externalObject("FakeMachine"))
		l.Expect(l.againAt(m, "machine")).To(Equal(10 * time.Second))
		l.wrote()
	})
}

// Once the controller has handled the generation, the loop waits for its writes to reach the cache, and then writes what is missing.
func TestWhatClusterAPIDoesNotPropagateIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms, m := handled(machineSet("team=ml"), 3, 2), machine("m", "MachineSet/ms")
		l := newLoop(t, theCluster(), ms, m)
		l.Expect(l.againAt(m, "machine")).To(Equal(10 * time.Second))
		l.change(ms, func() { handled(ms, 3, 3) })
		l.Expect(l.againAt(m, "machine")).To(Equal(time.Second))
		l.wrote()
		<-time.After(time.Second)
		l.Expect(l.againAt(m, "machine")).To(BeZero())
		l.Expect(l.writes.take()).To(HaveLen(1))
		l.counted(`resync_writes_total{kind="Machine",reason="unpropagated",result="applied"} 1`)
	})
}

// If the controller was never seen to have something to do, nothing is on its way.
func TestDriftIsRepairedAtOnce(t *testing.T) {
	l := newLoop(t, theCluster(), handled(machineSet("team=ml"), 3, 3), machine("m", "MachineSet/ms"))
	l.Expect(l.againAt(machine("m", ""), "machine")).To(BeZero())
	l.Expect(l.writes.take()).To(HaveLen(1))
}

// A controller with many Machines takes its time. As long as some of them get what they inherit, the others wait, but not for ever.
func TestAControllerThatGetsSomewhereHasMoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done, waits := machine("done", "MachineSet/ms"), machine("waits", "MachineSet/ms")
		done.Labels["team"] = "ml"
		l := newLoop(t, theCluster(), handled(machineSet("team=ml"), 3, 2), done, waits)
		var waited time.Duration
		for l.againAt(waits, "machine") > 0 {
			<-time.After(8 * time.Second)
			waited += 8 * time.Second
			l.Expect(l.againAt(done, "machine")).To(BeZero())
			l.Expect(waited).To(BeNumerically("<", 2*time.Minute))
		}
		l.Expect(waited).To(BeNumerically("~", time.Minute, 8*time.Second))
		l.Expect(l.writes.take()).To(HaveLen(1))
	})
}

// What the next generation declares begins anew.
func TestAnotherGenerationHasATimeOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms, m := handled(machineSet("team=ml"), 3, 2), machine("m", "MachineSet/ms")
		l := newLoop(t, theCluster(), ms, m)
		l.againAt(m, "machine")
		<-time.After(9 * time.Second)
		l.change(ms, func() { handled(ms, 4, 2) })
		l.Expect(l.againAt(m, "machine")).To(Equal(10 * time.Second))
	})
}

// A Node does not wait: it gets at once what its Machine will have.
func TestANodeDoesNotWaitForItsMachine(t *testing.T) {
	ms := handled(machineSet(pool+"=a"), 3, 2)
	l := newLoop(t, theCluster(), ms, machine("m", "MachineSet/ms"), node("m"))
	_, err := l.seeNode(types.NamespacedName{}, "m")
	l.Expect(err).NotTo(HaveOccurred())
	l.Expect(l.stored(node("m")).GetLabels()).To(HaveKeyWithValue(pool, "a"))
	l.Expect(l.stored(node("m")).GetAnnotations()).To(HaveKeyWithValue("heirloom.dev/labels-from-machine", pool))
}
