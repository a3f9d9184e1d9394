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
		{name: "an ordinary object inherits"},
		{name: "an object without a Cluster inherits, its Node does not", noCluster: true, forNode: "its Cluster does not exist"},
		{name: "an object that is being deleted is skipped, its Node is not", deleting: true, want: "it is being deleted"},
		{name: "an object that opted out is skipped", object: content{labels: "heirloom.dev/ignore="}, want: "it carries the label heirloom.dev/ignore", forNode: "it carries the label heirloom.dev/ignore"},
		{name: "whatever the label's value", object: content{labels: "heirloom.dev/ignore=false"}, want: "it carries the label heirloom.dev/ignore", forNode: "it carries the label heirloom.dev/ignore"},
		{name: "an annotation of that name does not opt out", object: content{annotations: "heirloom.dev/ignore="}},
		{name: "a paused object is skipped", object: content{annotations: "cluster.x-k8s.io/paused="}, want: "it is paused", forNode: "it is paused"},
		{name: "an object of a paused Cluster is skipped", paused: true, want: "its Cluster is paused", forNode: "its Cluster is paused"},
		{name: "a Cluster may be paused by annotation", cluster: content{annotations: "cluster.x-k8s.io/paused=true"}, want: "its Cluster is paused", forNode: "its Cluster is paused"},
		{name: "a Cluster opts out for all that belongs to it", cluster: content{labels: "heirloom.dev/ignore=true"}, want: "its Cluster carries the label heirloom.dev/ignore", forNode: "its Cluster carries the label heirloom.dev/ignore"},
		{name: "an object with the watched label inherits", policy: watched, object: content{labels: "cluster.x-k8s.io/watch-filter=blue"}},
		{name: "an object of another instance is skipped", policy: watched, object: content{labels: "cluster.x-k8s.io/watch-filter=green"}, want: "it does not carry the label cluster.x-k8s.io/watch-filter=blue", forNode: "it does not carry the label cluster.x-k8s.io/watch-filter=blue"},
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
