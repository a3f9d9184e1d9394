// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// A Cluster chooses its settings by labels, within what the operator allows. A label that has no effect is a problem, and a mistyped label
// evicts nobody.
func TestNoExecuteSettingsOfACluster(t *testing.T) {
	const how, rate, deadline, wave = inherit.NoExecuteLabel, inherit.NoExecuteRateLabel, inherit.NoExecuteDeadlineLabel, inherit.WaveLabel
	installed := inherit.NoExecute{Rate: 2, Deadline: time.Hour}
	same := inherit.NoExecuteOf{Rate: 2, Deadline: time.Hour, Wave: inherit.LastWave}
	with := func(change func(*inherit.NoExecuteOf)) inherit.NoExecuteOf { of := same; change(&of); return of }
	for _, tc := range []struct {
		name           string
		cluster, class map[string]string
		want, any      inherit.NoExecuteOf // with gentler, and with any
		problems       int                 // with gentler
	}{
		{name: "none", want: same, any: same},
		{name: "gentler", cluster: map[string]string{how: "budgets", rate: "0.5", deadline: "2h", wave: "3"},
			want: inherit.NoExecuteOf{Budgets: true, Rate: 0.5, Deadline: 2 * time.Hour, Wave: 3},
			any:  inherit.NoExecuteOf{Budgets: true, Rate: 0.5, Deadline: 2 * time.Hour, Wave: 3}},
		{name: "rougher", cluster: map[string]string{rate: "30", deadline: "1m"}, want: same, problems: 2,
			any: with(func(of *inherit.NoExecuteOf) { of.Rate, of.Deadline = 30, time.Minute })},
		{name: "no deadline is gentler", cluster: map[string]string{deadline: "0s"},
			want: with(func(of *inherit.NoExecuteOf) { of.Deadline = 0 }), any: with(func(of *inherit.NoExecuteOf) { of.Deadline = 0 })},
		{name: "the Cluster takes precedence", class: map[string]string{rate: "1", wave: "1"}, cluster: map[string]string{rate: "1.5"},
			want: with(func(of *inherit.NoExecuteOf) { of.Rate, of.Wave = 1.5, 1 }), any: with(func(of *inherit.NoExecuteOf) { of.Rate, of.Wave = 1.5, 1 })},
		{name: "a class pauses all its Clusters", class: map[string]string{how: "paused"}, cluster: map[string]string{how: "budgets"},
			want: with(func(of *inherit.NoExecuteOf) { of.Budgets, of.Paused, of.By = true, true, "ClusterClass o" }),
			any:  with(func(of *inherit.NoExecuteOf) { of.Budgets, of.Paused, of.By = true, true, "ClusterClass o" })},
		{name: "a mistyped label pauses", cluster: map[string]string{how: "pause"}, problems: 1,
			want: with(func(of *inherit.NoExecuteOf) { of.Paused, of.By = true, "Cluster o" }),
			any:  with(func(of *inherit.NoExecuteOf) { of.Paused, of.By = true, "Cluster o" })},
		{name: "what is no number", cluster: map[string]string{rate: "0", deadline: "-1s", wave: "x"}, want: same, any: same, problems: 3},
		{name: "nor this", cluster: map[string]string{rate: "NaN", deadline: "1d", wave: "-1"}, want: same, any: same, problems: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "o", Labels: tc.cluster}}
			class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Name: "o", Labels: tc.class}}
			allowed := installed
			for by, want := range map[inherit.PerCluster]inherit.NoExecuteOf{inherit.PerClusterGentler: tc.want, inherit.PerClusterAny: tc.any} {
				allowed.PerCluster = by
				of, problems := allowed.Of(cluster, class)
				Expect(of).To(Equal(want), string(by))
				if by == inherit.PerClusterGentler {
					Expect(problems).To(HaveLen(tc.problems))
				}
			}
			allowed.PerCluster = inherit.PerClusterNone
			of, _ := allowed.Of(cluster, class)
			Expect(of.Rate).To(BeEquivalentTo(2))
			Expect(of.Paused).To(Equal(tc.want.Paused), "anybody may pause their own Cluster")
		})
	}
	budgets := inherit.NoExecute{Budgets: true, PerCluster: inherit.PerClusterGentler}
	of, problems := budgets.Of(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{how: "pace"}}}, nil)
	NewWithT(t).Expect(of.Budgets).To(BeTrue())
	NewWithT(t).Expect(problems).To(ConsistOf("label heirloom.dev/no-execute of Cluster : the operator does not allow it (--per-cluster-no-execute=gentler)"))
}

func TestClustersAtATime(t *testing.T) {
	for text, want := range map[string]int{"3": 3, "10%": 20, "100%": 200, "1%": 2, "0.1%": 1} {
		n := inherit.NoExecute{Clusters: intstr.Parse(text)}
		NewWithT(t).Expect(n.MostClusters(200)).To(Equal(want), text)
	}
	NewWithT(t).Expect(inherit.NoExecute{Clusters: intstr.Parse("10%")}.MostClusters(3)).To(Equal(1), "at least one")
}
