// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// naming returns a Cluster and its ClusterClass with these annotations.
func naming(ofCluster, ofClass string) (*clusterv1.Cluster, *clusterv1.ClusterClass) {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Annotations: annotations(ofCluster)}},
		&clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Annotations: annotations(ofClass)}}
}

// A Cluster, or its ClusterClass, may name keys. They reach the Node like keys that an operator's regex selects, within the operator's
// bounds.
func TestNamedKeys(t *testing.T) {
	anyKey := []string{inherit.SyncAnyKey}
	const of = "sync.heirloom.dev/labels="
	for _, tc := range []struct {
		name, cluster, class, machine string
		allowed                       []string
		labels, want                  string
	}{
		{name: "a key", cluster: of + "team", allowed: anyKey, labels: "team=a,teams=b", want: "team=a"},
		{name: "a prefix", cluster: of + "example.com/*", allowed: anyKey, labels: "example.com/a=1,example.com.evil/b=2", want: "example.com/a=1"},
		{name: "of both", cluster: of + "a", class: of + "b", allowed: anyKey, labels: "a=1,b=2,c=3", want: "a=1,b=2"},
		{name: "of a class", class: of + "a", allowed: anyKey, labels: "a=1,b=2", want: "a=1"},
		{name: "a Machine and its templates name none", cluster: of + "a", machine: of + "b", allowed: anyKey, labels: "a=1,b=2", want: "a=1"},
		{name: "a list of more than 4 KiB names none", cluster: of + "team" + strings.Repeat(",-", 2<<10), class: of + "a", allowed: anyKey, labels: "team=1,a=1", want: "a=1"},
		{name: "any key", cluster: of + "*", allowed: anyKey, labels: "a=1,kubernetes.io/b=2,x.k8s.io/c=3", want: "a=1"},
		{name: "a broken entry concerns no other", cluster: of + "-a, team ,,b c,ex*ample", allowed: anyKey, labels: "team=a,b=1", want: "team=a"},
		{name: "a key that no Node inherits", cluster: of + "argocd.argoproj.io/*,cluster.x-k8s.io/*,heirloom.dev/*", allowed: anyKey, labels: "argocd.argoproj.io/a=1,cluster.x-k8s.io/cluster-name=c,heirloom.dev/ignore="},
		{name: "by default nothing", cluster: of + "team", labels: "team=a"},
		{name: "not of Kubernetes", cluster: of + "kubernetes.io/a,x.kubernetes.io/*,k8s.io/*", allowed: anyKey, labels: "kubernetes.io/a=1,x.kubernetes.io/b=2,k8s.io/c=3"},
		{name: "of Kubernetes, if the operator says so", cluster: of + "kubernetes.io/a", allowed: []string{"kubernetes.io/*"}, labels: "kubernetes.io/a=1", want: "kubernetes.io/a=1"},
		{name: "a wider prefix than allowed", cluster: of + "*", allowed: []string{"example.com/*", "team"}, labels: "example.com/a=1,team=2,b=3", want: "example.com/a=1,team=2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			policy := inherit.Policy{SyncAllowed: tc.allowed}
			m := content{labels: tc.labels, annotations: tc.machine}.machine()
			node, _ := planned(policy.Of(naming(tc.cluster, tc.class)), inherit.SourceOfMachine(m), content{}.initialized(), privileged)
			for key, value := range labels(tc.want) {
				Expect(node.Labels).To(HaveKeyWithValue(key, value))
			}
			for key := range m.Labels {
				if _, wanted := labels(tc.want)[key]; !wanted {
					Expect(node.Labels).NotTo(HaveKey(key))
				}
			}
			left, _ := planned(policy, inherit.SourceOfMachine(content{labels: tc.labels}.machine()), node, privileged)
			for key := range labels(tc.want) {
				Expect(left.Labels).NotTo(HaveKey(key), "the key is no longer named")
			}
		})
	}
}

// Each invalid entry is reported separately.
func TestNamingProblems(t *testing.T) {
	Expect := NewWithT(t).Expect
	policy := inherit.Policy{SyncAllowed: []string{inherit.SyncAnyKey, "node.kubernetes.io/pool*"}}
	longest := strings.Repeat("a", 253+1+63)
	Expect(policy.NamingProblems(annotations("sync.heirloom.dev/labels=a,example.com/*,*,node.kubernetes.io/*," + longest))).To(BeEmpty())
	Expect(policy.NamingProblems(annotations("sync.heirloom.dev/labels=a b,k8s.io/*; sync.heirloom.dev/annotations=/x"))).To(Equal([]string{
		`annotation sync.heirloom.dev/labels: "a b" is neither a key nor a prefix that ends with *`,
		`annotation sync.heirloom.dev/labels: "k8s.io/*" is not allowed (--per-cluster-sync-allowed)`,
		`annotation sync.heirloom.dev/annotations: "/x" is neither a key nor a prefix that ends with *`,
	}))
	keys, problems := inherit.ParseNamedKeys(longest + "a,b")
	Expect(keys).To(Equal([]string{"b"}), "no object can have a longer key")
	Expect(problems).To(HaveExactElements(HaveSuffix("is neither a key nor a prefix that ends with *")))
	keys, problems = inherit.ParseNamedKeys(strings.Repeat("a ,", 4<<10))
	Expect(keys).To(BeEmpty())
	Expect(problems).To(Equal([]string{"its 12288 bytes are more than 4096, so no entry counts"}))
	keys, problems = inherit.ParseNamedKeys(strings.Repeat("a,", 200))
	Expect(keys).To(HaveLen(100))
	Expect(problems).To(Equal([]string{"only the first 100 keys count"}))
}
