// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

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
	observe, labelled := inherit.Policy{Mode: inherit.Observe}, inherit.Policy{OnlyLabelled: true}
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
		{"the label of a Cluster comes before the default", observe, cluster("enforce"), nil, inherit.Enforce, true},
		{"the label of a Cluster comes before its class's", inherit.Policy{}, cluster("observe"), class("enforce"), inherit.Observe, true},
		{"a class has the mode of its Clusters", observe, &clusterv1.Cluster{}, class("enforce"), inherit.Enforce, true},
		{"a mistyped label asks for no writes", inherit.Policy{}, cluster("Enforce"), nil, inherit.Observe, true},
		{"a Cluster without the label is not enrolled", labelled, &clusterv1.Cluster{}, &clusterv1.ClusterClass{}, inherit.Enforce, false},
		{"an object without a Cluster is not enrolled", labelled, nil, nil, inherit.Enforce, false},
		{"a Cluster with the label is enrolled", labelled, cluster("enforce"), nil, inherit.Enforce, true},
		{"a class enrolls its Clusters", labelled, &clusterv1.Cluster{}, class("observe"), inherit.Observe, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mode, enrolled := tc.policy.ModeOf(tc.cluster, tc.class)
			NewWithT(t).Expect([]any{mode, enrolled}).To(Equal([]any{tc.want, tc.enrolled}))
		})
	}
}
