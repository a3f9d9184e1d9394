// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// The loop patches no Node while the installation is in observe mode, not even in a Cluster whose label says otherwise. When the
// installation leaves the mode, the Node gets the announced entries.
func TestANodeIsOnlyObserved(t *testing.T) {
	cluster := theCluster()
	cluster.Labels = map[string]string{inherit.ModeLabel: string(inherit.Enforce)}
	l := newLoop(t, cluster, machineSet(), nodeMachine("m"), node("m"))
	l.policy.Mode = inherit.Observe
	l.Expect(l.seeNode("m")).To(Succeed())
	l.wrote()
	l.told("Normal WouldWrite Machine/m: Observing only; would add ")
	l.counted(`would_write_total{kind="Node",what="label"} 1`, `would_write_total{kind="Node",what="taint"} 1`)
	l.notCounted("resync_writes_total")

	l.policy.Mode = inherit.Enforce
	l.Expect(l.seeNode("m")).To(Succeed())
	l.wrote("patches Node/m")
}

// The loop does not patch a Node of a Cluster that has entered observe mode before the cache has the change.
func TestANodeIsOnlyObservedSinceAMomentAgo(t *testing.T) {
	cluster := theCluster()
	l := newLoop(t, cluster, machineSet(), nodeMachine("m"), node("m"))
	l.lag(cluster)
	l.change(cluster, func() { cluster.Labels = map[string]string{inherit.ModeLabel: string(inherit.Observe)} })
	l.Expect(l.seeNode("m")).To(Succeed())
	l.wrote()
}

// The loop neither writes nor releases an object of Cluster API while its Cluster is in observe mode.
func TestAnObjectIsOnlyObserved(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"it would inherit": {clusterv1.ClusterNameLabel: "c"},
		"it is opted out":  {clusterv1.ClusterNameLabel: "c", inherit.IgnoreLabel: inherit.IgnoreAndRelease},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, set := theCluster(), machineSet()
			cluster.Labels = map[string]string{inherit.ModeLabel: string(inherit.Observe)}
			set.Spec.Template.Labels = map[string]string{"team": "ml"}
			m := machine("m", "MachineSet/ms")
			m.Labels = labels
			l := newLoop(t, cluster, set, m)
			l.Expect(l.see(m)).To(Succeed())
			l.wrote()
		})
	}
}
