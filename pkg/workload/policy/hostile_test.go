// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// written returns parameters with this content for every Node of the name n. Any client in the workload cluster may have written them.
func written(labels, taints string, annotations ...string) *corev1.ConfigMap {
	content := append([]string{"guard", labels, taints}, annotations...)
	return &corev1.ConfigMap{Data: map[string]string{"format": "2", "machines": "1\t\tn", "c.1": strings.Join(content, "\n")}}
}

// Clients of a workload cluster may write the parameters. From them, a Node gets only entries that the rules could bring, and its creation
// succeeds.
func TestParametersOfSomebodyElse(t *testing.T) {
	const (
		label, taints, note = "node.cluster.x-k8s.io/a=1", "a=1:NoSchedule", "node.cluster.x-k8s.io/note=1"
		lists               = "cluster.x-k8s.io/labels-from-machine=node.cluster.x-k8s.io/a"
	)
	all := []*regexp.Regexp{regexp.MustCompile("^$"), regexp.MustCompile("")}
	for _, rules := range []inherit.Policy{{}, {AdditionalLabels: all, AdditionalAnnotations: all}} {
		e := evaluatorBy(t, rules)
		node := nodeNamed("n")
		node.Labels, node.Annotations = map[string]string{"kubernetes.io/os": "linux", "mine": "1"}, map[string]string{"mine": "1"}
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
		good := inherit.OfNode(e.register(node, written(label, taints, note, lists)))
		NewWithT(t).Expect([]int{len(good.Labels), len(good.Annotations), len(good.Taints)}).To(Equal([]int{3, 4, 3}))
		registers := func(t *testing.T, parameters *corev1.ConfigMap) inherit.NodeState {
			t.Helper()
			Expect := NewWithT(t).Expect
			got, err := e.patch(node, parameters, celconfig.RuntimeCELCostBudget)
			if err != nil {
				got = node // an API server ignores the error
			}
			Expect(metav1validation.ValidateLabels(got.Labels, nil)).To(BeEmpty())
			Expect(apivalidation.ValidateAnnotations(got.Annotations, nil)).To(BeEmpty())
			Expect(taint.ByID(got.Spec.Taints)).To(HaveLen(len(got.Spec.Taints)), "no duplicate taints")
			return inherit.OfNode(got)
		}
		for _, evil := range []string{
			"node-role.kubernetes.io/control-plane=", "kubernetes.io/os=windows", "a.k8s.io/b=", "topology.kubernetes.io/zone=b",
			"node-restriction.kubernetes.io/a=1", inherit.RecordLabel + "=1", "heirloom.dev/ignore=", "cluster.x-k8s.io/cluster-name=other",
			"argocd.argoproj.io/instance=1", "app.kubernetes.io/managed-by=1", "=1", "/=1", "a/b/c=1", "-=1", "node.cluster.x-k8s.io/=1",
			"node.cluster.x-k8s.io/b=not valid", "node.cluster.x-k8s.io/b=" + strings.Repeat("1", 64), "node.cluster.x-k8s.io/" + strings.Repeat("b", 64) + "=",
		} {
			t.Run("label "+evil, func(t *testing.T) {
				got := registers(t, written(label+","+evil, taints, note, lists))
				NewWithT(t).Expect(got.Equal(good)).To(BeTrue(), "%+v", got)
			})
		}
		for _, evil := range []string{
			"x=1:", "x=1:Never", "=1:NoSchedule", "a/b/c=:NoSchedule", "x=not valid:NoSchedule", "node.kubernetes.io/unreachable=:NoExecute",
			"node.kubernetes.io/not-ready=1:NoSchedule", "node.cloudprovider.kubernetes.io/uninitialized=:NoSchedule",
			"node-role.kubernetes.io/master=:NoSchedule", clusterv1.NodeUninitializedTaint.Key + "=1:NoSchedule", clusterv1.NodeUninitializedTaint.Key + "=:NoExecute",
			clusterv1.NodeOutdatedRevisionTaint.Key + "=:PreferNoSchedule",
		} {
			t.Run("taint "+evil, func(t *testing.T) {
				got := registers(t, written(label, taints+","+evil, note, lists))
				NewWithT(t).Expect(got.Equal(good)).To(BeTrue(), "%+v", got)
			})
		}
		for _, evil := range []string{
			"=1", "a/b/c=1", "-=1", "heirloom.dev/uninitialized=added", "heirloom.dev/record-from-machine=", "heirloom.dev/record-from-machine=a;b",
			"heirloom.dev/record-from-machine=;mine:NoSchedule;signed=1", "heirloom.dev/record-from-machine=a;a=1:NoSchedule;signed=1",
			"heirloom.dev/matched-by-address=n.00", "cluster.x-k8s.io/machine=another", "taints.heirloom.dev/always=a:NoSchedule",
			"kubectl.kubernetes.io/last-applied-configuration={}", "scheduler.alpha.kubernetes.io/preferAvoidPods=x", "scheduler.alpha.kubernetes.io/taints=x",
			// Cluster API and Heirloom remove the entries in these lists.
			"heirloom.dev/labels-from-machine=mine", "heirloom.dev/annotations-from-machine=mine", "heirloom.dev/taints-from-machine=mine:NoSchedule",
			"heirloom.dev/labels-from-machine=node.cluster.x-k8s.io/a,kubernetes.io/os", "heirloom.dev/labels-from-machine=node.cluster.x-k8s.io/note",
			"cluster.x-k8s.io/annotations-from-machine=cluster.x-k8s.io/labels-from-machine", "cluster.x-k8s.io/taints-from-machine=node.kubernetes.io/not-ready:NoSchedule",
		} {
			t.Run("annotation "+evil, func(t *testing.T) {
				got := registers(t, written(label, taints, note, lists, evil))
				NewWithT(t).Expect(got.Equal(good)).To(BeTrue(), "%+v", got)
			})
		}
		for name, parameters := range map[string]*corev1.ConfigMap{
			"a label twice":       written(label+","+label, taints),
			"a taint twice":       written(label, taints+",a=2:NoSchedule"),
			"an annotation twice": written(label, taints, note, note),
			"no fields":           written("a", "b"),
			"no content":          {Data: map[string]string{"format": "2", "machines": "1\t\tn"}},
			"no Machines":         {Data: map[string]string{"format": "2"}},
			"too much":            written(label, taints, "node.cluster.x-k8s.io/b="+strings.Repeat("%25", 180<<10)),
		} {
			t.Run(name, func(t *testing.T) {
				got := registers(t, parameters)
				NewWithT(t).Expect(got.Equal(inherit.OfNode(node))).To(BeTrue(), "%+v", got)
			})
		}
		t.Run("too many annotations leave out annotations only", func(t *testing.T) {
			for _, size := range []int{100, 260 << 10} {
				got := registers(t, written(label, taints, "node.cluster.x-k8s.io/a="+strings.Repeat("ß", size/2)))
				NewWithT(t).Expect(got.Taints).To(Equal(good.Taints))
				NewWithT(t).Expect(got.Labels).To(Equal(good.Labels))
				NewWithT(t).Expect(got.Annotations).To(HaveLen(map[bool]int{true: 3, false: 1}[size == 100]))
			}
		})
	}
}

// The MutatingAdmissionPolicy brings the entries that an operator's regular expressions select, and no others.
func TestThePolicyKnowsTheOperatorsRegularExpressions(t *testing.T) {
	const quoted = `"it's"|\d+$`
	for name, want := range map[string]int{"": 0, "^team$": 1, quoted: 0, "^team$|" + quoted: 1} {
		rules := inherit.Policy{}
		if name != "" {
			rules.AdditionalLabels = []*regexp.Regexp{regexp.MustCompile(name)}
			rules.AdditionalAnnotations = rules.AdditionalLabels
		}
		got := evaluatorBy(t, rules).register(nodeNamed("n"), written("team=ml,teams=ml", "", "team=ml", "teams=ml"))
		NewWithT(t).Expect(got.Labels).To(HaveLen(want), name)
		NewWithT(t).Expect(got.Annotations).To(HaveLen(want+1), "%s: and the mark of the guard", name)
	}
}

// The MutatingAdmissionPolicy brings the keys that a Cluster names and the operator allows, and no others: not even from parameters of
// somebody else. A wide prefix names no key of Kubernetes, Cluster API or Heirloom.
func TestThePolicyKnowsTheNamedKeys(t *testing.T) {
	anyKey := []string{inherit.SyncAnyKey}
	all := []string{
		"team", "teams", "k", "example.com/a", "kubernetes.io/a", "x.kubernetes.io/a", "k8s.io/a", "x.k8s.io/a", "cluster.x-k8s.io/a",
		"topology.cluster.x-k8s.io/a", "heirloom.dev/a", "taints.heirloom.dev/always", "argocd.argoproj.io/a",
	}
	for _, tc := range []struct {
		named   string
		allowed []string
		want    []string
	}{
		{"", anyKey, nil},
		{"team", nil, nil},
		{"team", anyKey, []string{"team"}},
		{"team*,example.com/*", anyKey, []string{"team", "teams", "example.com/a"}},
		{"*", anyKey, []string{"team", "teams", "k", "example.com/a"}},
		{"k*,x*", anyKey, []string{"k"}},
		{"*,kubernetes.io/a", anyKey, []string{"team", "teams", "k", "example.com/a"}},
		{"*", []string{"team", "example.com/*"}, []string{"team", "example.com/a"}},
		{"kubernetes.io/*", []string{"kubernetes.io/a"}, []string{"kubernetes.io/a"}},
		{"c*,h*,t*,a*", []string{"c*", "h*", "t*", "a*"}, []string{"team", "teams"}},
	} {
		Expect := NewWithT(t).Expect
		rules := inherit.Policy{SyncAllowed: tc.allowed}.Of(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			inherit.SyncLabelsAnnotation: tc.named, inherit.SyncAnnotationsAnnotation: tc.named,
		}}}, nil)
		entries := make([]string, 0, len(all))
		for _, key := range all {
			entries = append(entries, key+"=1")
		}
		got := evaluatorBy(t, rules).register(nodeNamed("n"), written(strings.Join(entries, ","), "", entries...))
		delete(got.Annotations, inherit.UninitializedAnnotation)
		Expect(slices.Collect(maps.Keys(got.Annotations))).To(ConsistOf(tc.want), "annotations by %s in %v", tc.named, tc.allowed)
		labels := slices.DeleteFunc(slices.Clone(tc.want), func(key string) bool { return strings.Contains(key, "kubernetes.io") })
		Expect(slices.Collect(maps.Keys(got.Labels))).To(ConsistOf(labels), "labels by %s in %v", tc.named, tc.allowed)
	}
}

// A kubelet may report any number of addresses. The MutatingAdmissionPolicy reads as many as the rules.
func TestAsManyAddressesCountAsForTheRules(t *testing.T) {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "m", Annotations: map[string]string{"node.cluster.x-k8s.io/a": "m"}}}
	m.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "10.0.0.1"}}
	e, machines := newEvaluator(t), []*clusterv1.Machine{m}
	for before, found := range map[int]bool{inherit.MostAddresses - 1: true, inherit.MostAddresses: false} {
		addresses := make([]string, before, before+1)
		for i := range addresses {
			addresses[i] = fmt.Sprintf("172.16.0.%d", i)
		}
		node := anonymous("n", append(addresses, "10.0.0.1")...)
		want, m := expected(node, complete(machines...), inherit.Policy{})
		NewWithT(t).Expect(m != nil).To(Equal(found))
		got := inherit.OfNode(e.register(node, parametersOf(t, machines...)))
		NewWithT(t).Expect(got.Equal(want)).To(BeTrue(), "%d addresses before it: %+v", before, got)
	}
}
