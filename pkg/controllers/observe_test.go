// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
	l.counted(pending("Node", 1))
	l.notCounted("resync_writes_total")

	l.policy.Mode = inherit.Enforce
	l.Expect(l.seeNode("m")).To(Succeed())
	l.wrote("patches Node/m")
	l.notCounted("pending_writes")
}

// pending returns the sample of pending writes in Cluster c.
func pending(kind string, objects int) string {
	return fmt.Sprintf(`pending_writes{cluster_name="c",cluster_namespace="ns",kind="%s"} %d`, kind, objects)
}

// A pending write counts once, however often it is decided, until it is no longer needed or the object is gone.
func TestPendingWritesAreCounted(t *testing.T) {
	cluster, set := theCluster(), machineSet()
	cluster.Labels = map[string]string{inherit.ModeLabel: string(inherit.Observe)}
	set.Spec.Template.Labels = map[string]string{"team": "ml"}
	one, other := nodeMachine("m"), machine("n", "MachineSet/ms")
	l := newLoop(t, cluster, set, one, other, node("m"))
	seen := func() {
		l.t.Helper()
		for _, m := range []*clusterv1.Machine{one, other} {
			l.Expect(l.see(m)).To(Succeed())
		}
		l.Expect(l.seeNode("m")).To(Succeed())
	}
	seen()
	seen()
	l.counted(pending("Machine", 2), pending("Node", 1))
	l.change(other, func() { other.Labels["team"] = "ml" })
	l.Expect(l.server.Delete(t.Context(), node("m"))).To(Succeed())
	seen()
	l.counted(pending("Machine", 1))
	l.notCounted(strings.TrimSuffix(pending("Node", 0), " 0"))
	l.Expect(l.server.Delete(t.Context(), one)).To(Succeed())
	seen()
	l.notCounted("pending_writes")
}

// Each Cluster has one mode in the metrics, until it is gone.
func TestModesOfClustersAreCounted(t *testing.T) {
	cluster := theCluster()
	l := newLoop(t, cluster)
	l.policy.OnlyLabeled = true
	sees := func(mode string) {
		l.t.Helper()
		l.Expect(l.see(cluster)).To(Succeed())
		l.counted(`cluster_mode{cluster_name="c",cluster_namespace="ns",mode="` + mode + `"} 1`)
	}
	sees("none")
	l.change(cluster, func() { cluster.Labels = map[string]string{inherit.ModeLabel: "observe"} })
	sees("observe")
	l.change(cluster, func() { cluster.Labels = map[string]string{inherit.ModeLabel: "enforce"} })
	sees("enforce")
	l.notCounted(`cluster_mode{cluster_name="c",cluster_namespace="ns",mode="observe"}`)
	l.policy.WatchFilter = "another"
	l.Expect(l.see(cluster)).To(Succeed())
	l.notCounted("cluster_mode")
	l.policy.WatchFilter = ""
	sees("enforce")
	l.Expect(l.server.Delete(t.Context(), cluster)).To(Succeed())
	l.Expect(l.see(cluster)).To(Succeed())
	l.notCounted("cluster_mode")
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

// The loop does not announce entries that Cluster API is about to write.
func TestAdditionsLeftToClusterAPIAreNotAnnounced(t *testing.T) {
	inUse(t, func(t *testing.T) {
		set, m := machineSet(), machine("m", "MachineSet/ms")
		observed(set)
		l := newLoop(t, theCluster(), set, m)
		l.policy.Mode = inherit.Observe
		l.change(set, func() { declare(set, "team=ml") })
		l.Expect(l.look(m)).To(Equal(30 * time.Second))
		l.told()
		<-time.After(30 * time.Second)
		l.Expect(l.see(m)).To(Succeed())
		l.told("Normal WouldWrite Machine/m: Observing only; would add ")
	})
}

// The loop neither writes nor cleans up an object of Cluster API while its Cluster is in observe mode.
func TestAnObjectIsOnlyObserved(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"it would inherit": {clusterv1.ClusterNameLabel: "c"},
		"it is skipped":    {clusterv1.ClusterNameLabel: "c", inherit.IgnoreLabel: inherit.IgnoreAndCleanUp},
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
