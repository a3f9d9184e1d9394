// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestLeads(t *testing.T) {
	now := time.Now()
	lease := func(holder string, renewed time.Duration) coordinationv1.LeaseSpec {
		return coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(15)), RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-renewed))),
		}
	}
	for _, tc := range []struct {
		name  string
		lease coordinationv1.LeaseSpec
		leads bool
	}{
		{"a replica that renews", lease("pod", 2*time.Second), true},
		{"one that has stopped renewing", lease("pod", 16*time.Second), false},
		{"one that has given the Lease back", lease("", time.Second), false},
		{"a release", lease(holder, time.Second), false},
		{"nobody ever", coordinationv1.LeaseSpec{}, false},
		{"somebody who has never renewed", coordinationv1.LeaseSpec{HolderIdentity: ptr.To("pod")}, false},
	} {
		t.Run(tc.name, func(t *testing.T) { NewWithT(t).Expect(leads(tc.lease, now)).To(Equal(tc.leads)) })
	}
}

func TestChosenKinds(t *testing.T) {
	s := &session{Releaser: Releaser{Options: Options{ProviderGroups: []string{"infrastructure.cluster.x-k8s.io", "infra.example.com"}}}}
	all := metav1.Verbs{"get", "list", "patch"}
	chosen := s.chosen([]*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "nodes", Kind: "Node", Verbs: all}}},
		{GroupVersion: "infra.example.com/v1", APIResources: []metav1.APIResource{{Name: "metals", Kind: "Metal", Verbs: all, Namespaced: true}}},
		{GroupVersion: "infrastructure.cluster.x-k8s.io/v1beta1", APIResources: []metav1.APIResource{
			{Name: "fakemachines", Kind: "FakeMachine", Verbs: all, Namespaced: true}, {Name: "fakemachinetemplates", Kind: "FakeMachineTemplate", Verbs: all, Namespaced: true},
			{Name: "reviews", Kind: "Review", Verbs: metav1.Verbs{"create"}, Namespaced: true}, {Name: "identities", Kind: "Identity", Verbs: all},
		}},
		{GroupVersion: "cluster.x-k8s.io/v1beta2", APIResources: []metav1.APIResource{
			{Name: "clusters", Kind: "Cluster", Verbs: all, Namespaced: true}, {Name: "machines", Kind: "Machine", Verbs: all, Namespaced: true},
		}},
		{GroupVersion: "controlplane.cluster.x-k8s.io/v1beta2", APIResources: []metav1.APIResource{{Name: "cps", Kind: "CP", Verbs: all, Namespaced: true}}},
		{GroupVersion: "other.example.com/v1", APIResources: []metav1.APIResource{{Name: "others", Kind: "Other", Verbs: all, Namespaced: true}}},
	})
	NewWithT(t).Expect(chosen).To(Equal([]schema.GroupVersionKind{
		{Group: "controlplane.cluster.x-k8s.io", Version: "v1beta2", Kind: "CP"},
		{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Machine"},
		{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Kind: "FakeMachine"},
		{Group: "infra.example.com", Version: "v1", Kind: "Metal"},
	}))
}

func TestScope(t *testing.T) {
	Expect := NewWithT(t).Expect
	labelled := func(uid types.UID, color string, owners ...types.UID) *metav1.ObjectMeta {
		object := &metav1.ObjectMeta{UID: uid, Labels: map[string]string{clusterv1.WatchLabel: color}}
		for _, owner := range owners {
			object.OwnerReferences = append(object.OwnerReferences, metav1.OwnerReference{UID: owner})
		}
		return object
	}
	red := &scope{watchFilter: "red", owners: sets.New[types.UID]()}
	Expect(red.hasObject(labelled("m", "red"))).To(BeTrue())
	Expect(red.hasObject(labelled("n", "blue"))).To(BeFalse())
	Expect(red.hasObject(labelled("o", "blue", "m"))).To(BeFalse(), "what inherits by itself needs the label itself")
	Expect(red.hasExternal(labelled("s", "", "m"))).To(BeTrue(), "a provider need not copy the label")
	Expect(red.hasExternal(labelled("s", "red", "n"))).To(BeFalse(), "its Machine's label counts")
	Expect(red.hasExternal(labelled("s", "red"))).To(BeTrue())
	Expect((&scope{}).hasExternal(labelled("s", ""))).To(BeTrue())
}

func TestScopeOfNodes(t *testing.T) {
	Expect := NewWithT(t).Expect
	node := func(name, id string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: id}}
	}
	Expect((&scope{}).hasNode(node("any", ""))).To(BeTrue())

	some := &scope{someNodes: true, providerIDs: sets.New[string](), nodeNames: sets.New[string]()}
	add := func(cluster string, object map[string]any) {
		owner := &unstructured.Unstructured{Object: object}
		owner.SetNamespace("ns")
		Expect(unstructured.SetNestedField(owner.Object, cluster, "spec", "clusterName")).To(Succeed())
		some.addNodes(owner, types.NamespacedName{Namespace: "ns", Name: "own"})
	}
	add("other", map[string]any{"spec": map[string]any{"providerID": "x://1"}, "status": map[string]any{"nodeRef": map[string]any{"name": "same"}}})
	add("other", map[string]any{"spec": map[string]any{"providerIDList": []any{"x://2"}}})
	Expect(some.hasNode(node("a", "x://1"))).To(BeTrue())
	Expect(some.hasNode(node("b", "x://2"))).To(BeTrue())
	Expect(some.hasNode(node("c", "x://3"))).To(BeFalse())
	Expect(some.hasNode(node("d", ""))).To(BeFalse())
	Expect(some.hasNode(node("same", ""))).To(BeFalse(), "names repeat between clusters")
	add("own", map[string]any{"status": map[string]any{"nodeRef": map[string]any{"name": "same"}}})
	Expect(some.hasNode(node("same", ""))).To(BeTrue())
}

func TestReport(t *testing.T) {
	Expect := NewWithT(t).Expect
	var out, progress bytes.Buffer
	r := &report{out: &out, progress: &progress, dryRun: true}
	machine := schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"}
	r.did("released", machine, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "x"}}, "", ".metadata.labels.a")
	r.did("released", schema.GroupKind{Kind: "Node"}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "y"}}, " in workload cluster n/c")
	Expect(out.String()).To(Equal("machine.cluster.x-k8s.io/x released in namespace n (dry run)\n  .metadata.labels.a\n" +
		"node/y released in workload cluster n/c (dry run)\n"))
	r.failed(nil)
	Expect(r.err()).To(Succeed())
	r.failed(errors.New("workload cluster n/c: no route"))
	Expect(r.err()).To(MatchError(And(ContainSubstring("run it again"), ContainSubstring("n/c: no route"))))
}

func TestProvisioned(t *testing.T) {
	for want, statuses := range map[bool][]map[string]any{
		true: {
			{"initialization": map[string]any{"infrastructureProvisioned": true}}, {"infrastructureReady": true},
		},
		false: {nil, {"initialization": map[string]any{"infrastructureProvisioned": false}}, {"infrastructureReady": false}},
	} {
		for _, status := range statuses {
			cluster := &unstructured.Unstructured{Object: map[string]any{"status": status}}
			NewWithT(t).Expect(provisioned(cluster)).To(Equal(want), "%v", status)
		}
	}
}
