// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Whatever the reason for which a Machine is skipped: taints that Cluster API refuses are given up, or else nothing could be written any more.
func TestSkippedMachineGivesRefusedTaintsUp(t *testing.T) {
	const enabled, disabled = inherit.PropagationEnabled, inherit.PropagationDisabled
	paused := &clusterv1.Cluster{ObjectMeta: named("c", ""), Spec: clusterv1.ClusterSpec{Paused: new(true)}}
	for _, tc := range []struct {
		name    string
		policy  inherit.Policy
		owner   string
		change  func(metav1.Object)
		cached  []client.Object
		untyped bool
		givesUp bool
	}{
		{name: "while it is being deleted", policy: inherit.Policy{ClusterAPITaints: disabled}, change: deleting, givesUp: true},
		{name: "while it is paused", policy: inherit.Policy{ClusterAPITaints: disabled}, change: pause, givesUp: true},
		{name: "while its Cluster is paused", policy: inherit.Policy{ClusterAPITaints: disabled}, cached: []client.Object{paused}, givesUp: true},
		{name: "when it has opted out", policy: inherit.Policy{ClusterAPITaints: disabled}, change: label(inherit.IgnoreLabel, ""), givesUp: true},
		{name: "when its owner is gone", policy: inherit.Policy{ClusterAPITaints: disabled}, owner: "MachineSet/gone", givesUp: true},
		{name: "not where Cluster API accepts them", policy: inherit.Policy{ClusterAPITaints: enabled}, change: deleting},
		{name: "not while nothing is known", change: deleting},
		{name: "not where there are none", policy: inherit.Policy{ClusterAPITaints: disabled}, change: deleting, untyped: true},
		{name: "not those of another instance", policy: inherit.Policy{ClusterAPITaints: disabled, WatchFilter: "blue"}, change: deleting},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			m := machine("m", tc.owner)
			if !tc.untyped {
				m.Spec.Taints = []clusterv1.MachineTaint{{Key: "gpu", Effect: "NoSchedule", Propagation: "Always"}}
			}
			if tc.change != nil {
				tc.change(m)
			}

			found, err := Machines().Evaluate(t.Context(), &Chain{Reader: admission(holds(t, tc.cached...), holds(t), nil)}, m, tc.policy)

			Expect(err).NotTo(HaveOccurred())
			if !tc.givesUp {
				Expect(found.Untouched()).To(BeTrue())
				Expect(found.Reason).NotTo(BeEmpty())
				return
			}
			Expect(found.Outcome).To(Equal(inherit.NoOwner))
			Expect(found.Reason).NotTo(BeEmpty())
			Expect(found.TaintsRefused).To(BeTrue())
			Expect(found.Desired).To(Equal(inherit.Object{}))
		})
	}
}
