// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "fleet", Name: name}
}

func TestEachObjectIsReadOnce(t *testing.T) {
	g := NewWithT(t)
	s := serve(t, fleetOf(1).objects...)
	for range 3 {
		m := &clusterv1.Machine{}
		g.Expect(s.Snapshot.Get(t.Context(), key("single"), m)).To(Succeed())
		g.Expect(m.Spec.ProviderID).To(Equal("acme://single"))
		g.Expect(m.GroupVersionKind()).To(Equal(clusterv1.GroupVersion.WithKind("Machine")))
		m.Labels["mine"] = "yes" // the next one must not have it
		g.Expect(apierrors.IsNotFound(s.Snapshot.Get(t.Context(), key("nobody"), &clusterv1.Machine{}))).To(BeTrue())
	}
	m := &clusterv1.Machine{}
	g.Expect(s.Snapshot.Get(t.Context(), key("single"), m)).To(Succeed())
	g.Expect(m.Labels).NotTo(HaveKey("mine"))
	g.Expect(s.asked).To(ConsistOf("get Machine fleet/single", "get Machine fleet/nobody"))
}

func TestAnErrorIsNotAskedForAgain(t *testing.T) {
	g := NewWithT(t)
	s := serve(t)
	s.fails = func(string, string) error { return errors.New("conversion webhook failed") }
	for range 3 {
		g.Expect(s.Snapshot.Get(t.Context(), key("single"), &clusterv1.Machine{})).To(MatchError("conversion webhook failed"))
		g.Expect(s.Snapshot.List(t.Context(), &clusterv1.ClusterList{})).To(MatchError("conversion webhook failed"))
	}
	g.Expect(s.asked).To(ConsistOf("get Machine fleet/single", "list ClusterList "))
	g.Expect(s.Snapshot.Get(t.Context(), key("prod"), &clusterv1.Cluster{})).To(MatchError("conversion webhook failed"), "the list has failed")
	g.Expect(s.asked).To(HaveLen(2))
}

// A user who may not list objects may still be allowed to read one.
func TestAListThatIsForbidden(t *testing.T) {
	g := NewWithT(t)
	s := serve(t, fleetOf(1).objects...)
	s.fails = func(verb, _ string) error {
		if verb == "list" {
			return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
		}
		return nil
	}
	g.Expect(apierrors.IsForbidden(s.Prefetch(t.Context()))).To(BeTrue())
	g.Expect(s.Snapshot.Get(t.Context(), key("prod"), &clusterv1.Cluster{})).To(Succeed())
}

// The end of a command is no answer, and a deadline of the owner chain is too early for people.
func TestAReadOutlivesADeadlineAndNotTheCommand(t *testing.T) {
	g := NewWithT(t)
	s := serve(t, fleetOf(1).objects...)
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	g.Expect(s.Snapshot.Get(late, key("prod"), &clusterv1.Cluster{})).To(Succeed())

	ended, end := context.WithCancel(t.Context())
	s.fails = func(string, string) error { end(); return context.Canceled }
	g.Expect(s.Snapshot.Get(ended, key("single"), &clusterv1.Machine{})).To(MatchError(context.Canceled))
	s.fails = func(string, string) error { return nil }
	g.Expect(s.Snapshot.Get(t.Context(), key("single"), &clusterv1.Machine{})).To(Succeed())
}

func TestPrefetchLeavesNothingToAskFor(t *testing.T) {
	g := NewWithT(t)
	s := serve(t, fleetOf(5).objects...)
	g.Expect(s.Prefetch(t.Context())).To(Succeed())
	asked := len(s.asked)
	g.Expect(asked).To(Equal(6))
	g.Expect(s.Snapshot.Get(t.Context(), key("md-1-003"), &clusterv1.Machine{})).To(Succeed())
	g.Expect(apierrors.IsNotFound(s.Snapshot.Get(t.Context(), key("md-1-009"), &clusterv1.Machine{}))).To(BeTrue())
	machines := &clusterv1.MachineList{}
	g.Expect(s.Snapshot.List(t.Context(), machines, client.InNamespace("fleet"))).To(Succeed())
	g.Expect(machines.Items).To(HaveLen(8))
	g.Expect(s.Snapshot.List(t.Context(), machines, client.InNamespace("elsewhere"))).To(Succeed())
	g.Expect(machines.Items).To(BeEmpty())
	g.Expect(s.asked).To(HaveLen(asked))
}

// An empty list is one, too: what is not in it is not there.
func TestAKindWithoutObjects(t *testing.T) {
	g := NewWithT(t)
	s := serve(t)
	g.Expect(s.Prefetch(t.Context())).To(Succeed())
	asked := len(s.asked)
	for range 3 {
		g.Expect(apierrors.IsNotFound(s.Snapshot.Get(t.Context(), key("x"), &clusterv1.MachinePool{}))).To(BeTrue())
	}
	g.Expect(s.asked).To(HaveLen(asked))
}

// Metadata of all kinds has one Go type.
func TestKindsOfOneTypeAreApart(t *testing.T) {
	g := NewWithT(t)
	s := serve(t, fleetOf(2).objects...)
	infra := &metav1.PartialObjectMetadataList{}
	infra.SetGroupVersionKind(acmeMachine().GroupVersion().WithKind("AcmeMachineList"))
	g.Expect(s.Snapshot.List(t.Context(), infra, client.InNamespace("fleet"))).To(Succeed())
	g.Expect(infra.Items).To(HaveLen(5))
	cp := &metav1.PartialObjectMetadata{}
	cp.SetGroupVersionKind(acmeControlPlane())
	g.Expect(s.Snapshot.Get(t.Context(), key("cp"), cp)).To(Succeed())
	g.Expect(cp.GroupVersionKind()).To(Equal(acmeControlPlane()))
	one := &metav1.PartialObjectMetadata{}
	one.SetGroupVersionKind(acmeMachine())
	g.Expect(s.Snapshot.Get(t.Context(), key("md-1-001"), one)).To(Succeed())
	g.Expect(one.UID).To(Equal(types.UID("infra-md-1-001")))
	g.Expect(s.asked).To(ConsistOf("list AcmeMachineList fleet", "get AcmeControlPlane fleet/cp"))
}

func TestIndexes(t *testing.T) {
	g := NewWithT(t)
	f := fleetOf(3)
	other := of("Machine", &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "same", UID: "same"}})
	other.Spec.ClusterName, other.Spec.ProviderID = "prod", "acme://single"
	s := serve(t, append(f.objects, other)...)
	chain := s.Chain()
	machines := &clusterv1.MachineList{}
	_, err := chain.Children(t.Context(), f.sets[0], machines)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names(machines.Items)).To(Equal([]string{"md-1-000", "md-1-001", "md-1-002"}))
	_, err = chain.Children(t.Context(), f.sets[1], machines)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(machines.Items).To(BeEmpty())
	_, err = chain.Members(t.Context(), key("prod"), machines)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(machines.Items).To(HaveLen(6), "not the one of another namespace")
	m, err := chain.Within(key("prod")).MachineOf(t.Context(), node("single"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.Name).To(Equal("single"))
	both := client.MatchingFields{"providerID": "prod/acme://single", "clusterName": "prod"}
	g.Expect(s.Snapshot.List(t.Context(), machines, both)).To(Succeed())
	g.Expect(names(machines.Items)).To(Equal([]string{"same", "single"}))
	g.Expect(s.Snapshot.List(t.Context(), machines, both, client.InNamespace("fleet"))).To(Succeed())
	g.Expect(names(machines.Items)).To(Equal([]string{"single"}))
}

func names(machines []clusterv1.Machine) []string {
	var all []string
	for i := range machines {
		all = append(all, machines[i].Name)
	}
	return all
}

func TestWhatIsPutStandsInFrontOfWhatIsStored(t *testing.T) {
	g := NewWithT(t)
	f := fleetOf(2)
	s := serve(t, f.objects...)
	machines := &clusterv1.MachineList{}
	_, err := s.Chain().Children(t.Context(), f.sets[0], machines)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(machines.Items).To(HaveLen(2), "before")

	s.Put(asUnstructured(t, machines.Items[1], func(o *unstructured.Unstructured) { o.SetOwnerReferences(named("x", f.sets[1]).OwnerReferences) }))
	s.Put(asUnstructured(t, machines.Items[1], func(o *unstructured.Unstructured) { o.SetName("md-1-000-new"); o.SetUID("new") }))
	_, err = s.Chain().Children(t.Context(), f.sets[0], machines)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names(machines.Items)).To(Equal([]string{"md-1-000", "md-1-000-new"}), "in order")
	g.Expect(machines.Items[1].GroupVersionKind().Kind).To(Equal("Machine"))
	_, err = s.Chain().Children(t.Context(), f.sets[1], machines)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names(machines.Items)).To(Equal([]string{"md-1-001"}))
	for _, object := range []client.Object{&clusterv1.Machine{}, kind(&metav1.PartialObjectMetadata{}), kind(&unstructured.Unstructured{})} {
		g.Expect(s.Snapshot.Get(t.Context(), key("md-1-000-new"), object)).To(Succeed())
		g.Expect(object.GetUID()).To(Equal(types.UID("new")))
	}
	g.Expect(s.Snapshot.List(t.Context(), machines, client.InNamespace("elsewhere"))).To(Succeed())
	g.Expect(machines.Items).To(BeEmpty())
	infra := &metav1.PartialObjectMetadataList{}
	infra.SetGroupVersionKind(acmeMachine().GroupVersion().WithKind("AcmeMachineList"))
	g.Expect(s.Snapshot.List(t.Context(), infra)).To(Succeed())
	g.Expect(infra.Items).To(HaveLen(5), "no Machines among them")
}

func kind[T client.Object](object T) T {
	object.GetObjectKind().SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	return object
}

func asUnstructured(t *testing.T, m clusterv1.Machine, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&m)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	object := &unstructured.Unstructured{Object: content}
	change(object)
	return object
}
