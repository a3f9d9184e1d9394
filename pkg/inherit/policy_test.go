// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Entries of an owner stay while the object has no owner, apart from taints that Cluster API refuses.
func TestKeeps(t *testing.T) {
	for _, tc := range []struct {
		entry inherit.Entry
		// stays and staysRefused: Heirloom's entry stays without an owner (staysRefused: where taints are refused); owned: an owner
		// declared it.
		stays, staysRefused, owned bool
	}{
		{entry: inherit.Entry{What: "label", Name: "a", Own: true}, stays: true, staysRefused: true, owned: true},
		{entry: inherit.Entry{What: "field", Name: "minReadySeconds"}, stays: true, staysRefused: true, owned: true},
		{entry: inherit.Entry{What: "taint", Name: "a:NoSchedule", Own: true}, stays: true},
		{entry: inherit.Entry{What: "taint", Name: "a:NoSchedule"}, stays: true, owned: true},
		{entry: inherit.Entry{What: "annotation", Name: inherit.CapacityTaintsAnnotation, Own: true}},
	} {
		t.Run(tc.entry.What+" "+tc.entry.Name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			Expect(inherit.Decision{Outcome: inherit.NoOwner}.Keeps(tc.entry)).To(Equal(tc.stays))
			Expect(inherit.Decision{Outcome: inherit.NoOwner, TaintsRefused: true}.Keeps(tc.entry)).To(Equal(tc.staysRefused))
			Expect(inherit.Decision{Outcome: inherit.Inherits}.Keeps(tc.entry)).To(BeFalse())
			Expect(tc.entry.FromOwner()).To(Equal(tc.owned))
		})
	}
}

// A yielding annotation is left out if the same name is declared.
func TestWithYielding(t *testing.T) {
	Expect := NewWithT(t).Expect
	declared := inherit.Content{Annotations: map[string]string{"a": "declared"}}
	got := declared.WithYielding(map[string]string{"a": "told", "b": "told"})
	Expect(got.Annotations).To(Equal(map[string]string{"a": "declared", "b": "told"}))
	Expect(got.Claims).To(Equal(map[string]inherit.Claim{"b": inherit.Yielding}))
	Expect(declared.Annotations).To(HaveLen(1), "the input is not mutated")
}

func TestModeOf(t *testing.T) {
	cluster, class := func(value string) *clusterv1.Cluster {
		c := &clusterv1.Cluster{}
		c.Labels = map[string]string{inherit.ModeLabel: value}
		return c
	}, func(value string) *clusterv1.ClusterClass {
		c := &clusterv1.ClusterClass{}
		c.Labels = map[string]string{inherit.ModeLabel: value}
		return c
	}
	observe, labeled := inherit.Policy{Mode: inherit.Observe}, inherit.Policy{OnlyLabeled: true}
	for _, tc := range []struct {
		name     string
		policy   inherit.Policy
		cluster  *clusterv1.Cluster
		class    *clusterv1.ClusterClass
		want     inherit.Mode
		enrolled bool
	}{
		{"by default everything is written", inherit.Policy{}, &clusterv1.Cluster{}, nil, inherit.Enforce, true},
		{"an object without a Cluster has the default", observe, nil, nil, inherit.Observe, true},
		{"the label of a Cluster comes before its class's", inherit.Policy{}, cluster("observe"), class("enforce"), inherit.Observe, true},
		{"a class has the mode of its Clusters", inherit.Policy{}, &clusterv1.Cluster{}, class("observe"), inherit.Observe, true},
		{"an installation that only observes writes in no Cluster", observe, cluster("enforce"), class("enforce"), inherit.Observe, true},
		{"nor does it enroll more Clusters", inherit.Policy{Mode: inherit.Observe, OnlyLabeled: true}, &clusterv1.Cluster{}, nil, inherit.Observe, false},
		{"a mistyped label asks for no writes", inherit.Policy{}, cluster("Enforce"), nil, inherit.Observe, true},
		{"a Cluster without the label is not enrolled", labeled, &clusterv1.Cluster{}, &clusterv1.ClusterClass{}, inherit.Enforce, false},
		{"an object without a Cluster is not enrolled", labeled, nil, nil, inherit.Enforce, false},
		{"a class enrolls its Clusters", labeled, &clusterv1.Cluster{}, class("observe"), inherit.Observe, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mode, enrolled := tc.policy.ModeOf(tc.cluster, tc.class)
			NewWithT(t).Expect([]any{mode, enrolled}).To(Equal([]any{tc.want, tc.enrolled}))
		})
	}
}

func TestSkips(t *testing.T) {
	watched := inherit.Policy{WatchFilter: "blue"}
	for _, tc := range []struct {
		name            string
		policy          inherit.Policy
		object, cluster content
		noCluster       bool
		paused          bool
		deleting        bool
		want, forNode   inherit.Reason
	}{
		{name: "an object without a Cluster inherits, its Node does not", noCluster: true, forNode: "its Cluster does not exist"},
		{name: "an object that is being deleted is skipped, its Node is not", deleting: true, want: "it is being deleted"},
		{name: "an object with the label heirloom.dev/ignore is skipped", object: content{labels: "heirloom.dev/ignore="}, want: "it carries the label heirloom.dev/ignore", forNode: "it carries the label heirloom.dev/ignore"},
		{name: "whatever the label's value", object: content{labels: "heirloom.dev/ignore=false"}, want: "it carries the label heirloom.dev/ignore", forNode: "it carries the label heirloom.dev/ignore"},
		{name: "a paused object is skipped", object: content{annotations: "cluster.x-k8s.io/paused="}, want: "it is paused", forNode: "it is paused"},
		{name: "an object of a paused Cluster is skipped", paused: true, want: "its Cluster is paused", forNode: "its Cluster is paused"},
		{name: "a Cluster may be paused by annotation", cluster: content{annotations: "cluster.x-k8s.io/paused=true"}, want: "its Cluster is paused", forNode: "its Cluster is paused"},
		{name: "a Cluster is skipped with all that belongs to it", cluster: content{labels: "heirloom.dev/ignore=true"}, want: "its Cluster carries the label heirloom.dev/ignore", forNode: "its Cluster carries the label heirloom.dev/ignore"},
		{name: "an object with the watched label inherits", policy: watched, object: content{labels: "cluster.x-k8s.io/watch-filter=blue"}},
		{name: "an object of no instance is skipped", policy: watched, want: "it does not carry the label cluster.x-k8s.io/watch-filter=blue", forNode: "it does not carry the label cluster.x-k8s.io/watch-filter=blue"},
		{name: "without a watch filter the label does not matter", object: content{labels: "cluster.x-k8s.io/watch-filter=green"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			m := tc.object.machine()
			if tc.deleting {
				m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}
			cluster := &clusterv1.Cluster{Spec: clusterv1.ClusterSpec{Paused: &tc.paused}}
			cluster.Labels, cluster.Annotations = labels(tc.cluster.labels), annotations(tc.cluster.annotations)
			if tc.noCluster {
				cluster = nil
			}
			why, skipped := tc.policy.Skips(m, cluster)
			Expect(skipped).To(Equal(tc.want != ""))
			Expect(why).To(Equal(tc.want))
			why, skipped = tc.policy.SkipsNode(m, cluster)
			Expect(skipped).To(Equal(tc.forNode != ""))
			Expect(why).To(Equal(tc.forNode))
			Expect(m.DeletionTimestamp != nil).To(Equal(tc.deleting), "the input is not mutated")
		})
	}
}
