// SPDX-License-Identifier: Apache-2.0

package kept_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/kept"
)

// own is a string with memory of its own, as a decoder makes it.
func own(text string) string { return strings.Clone(text) }

// machine is the n-th Machine of a MachineSet. It shares nothing with another.
func machine(set string, n int) *capi.Machine {
	m := &capi.Machine{}
	m.Namespace, m.Name, m.UID, m.ResourceVersion = own("fleet"), fmt.Sprintf("%s-%d", set, n), types.UID(fmt.Sprint("uid-", n)), fmt.Sprint(n)
	m.Labels = map[string]string{own("set"): own(set), own("node.cluster.x-k8s.io/pool"): own("gpu")}
	m.Annotations = map[string]string{own("team"): own(set)}
	m.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: own("cluster.x-k8s.io/v1beta2"), Kind: own("MachineSet"), Name: own(set), UID: types.UID(own(set)), Controller: ptr.To(true),
	}}
	m.Finalizers = []string{own(clusterv1.MachineFinalizer)}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: own("heirloom"), Operation: "Apply", APIVersion: own("cluster.x-k8s.io/v1beta2"), FieldsType: own("FieldsV1"),
		FieldsV1: metav1.NewFieldsV1(own(`{"f:metadata":{"f:labels":{"f:` + set + `":{}}}}`)),
	}}
	m.Spec.ClusterName, m.Spec.ProviderID = own("prod"), fmt.Sprint("acme://", n)
	m.Spec.InfrastructureRef = capi.ObjectRef{APIGroup: own("infrastructure.cluster.x-k8s.io"), Kind: own("AcmeMachine"), Name: own(m.Name)}
	m.Spec.Taints = []clusterv1.MachineTaint{{Key: own("gpu"), Value: own(set), Effect: "NoSchedule", Propagation: "Always"}}
	m.Status.Addresses = []clusterv1.MachineAddress{
		{Type: clusterv1.MachineInternalIP, Address: own("10.0.0.1")}, {Type: clusterv1.MachineExternalIP, Address: own("192.0.2.1")},
	}
	return m
}

func keep(t *testing.T, transform func(any) (any, error), object any) any {
	t.Helper()
	result, err := transform(object)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// same reports whether two strings are the same memory.
func same(a, b string) bool { return unsafe.StringData(a) == unsafe.StringData(b) }

// What is kept says the same as what was sent, and the Machines of a set have one copy of what is equal.
func TestMachinesOfASetShare(t *testing.T) {
	Expect := NewWithT(t).Expect
	// Two parts may have the same place in the memory of what was seen (two runs of a hundred), but not in eight memories.
	var copied []string
	for range 8 {
		s := kept.New(inherit.Policy{})
		all := map[string][]*capi.Machine{}
		for n := range 6 {
			set := []string{"blue", "green"}[n%2]
			m := machine(set, n)
			Expect(keep(t, s.Object, m)).To(BeIdenticalTo(m))
			want := machine(set, n)
			want.Status.Addresses = want.Status.Addresses[:1]
			Expect(m).To(Equal(want))
			all[set] = append(all[set], m)
		}
		copied = nil
		for _, machines := range all {
			for _, m := range machines[1:] {
				copied = append(copied, notShared(m, machines[0])...)
			}
		}
		if len(copied) == 0 {
			break
		}
	}
	Expect(copied).To(BeEmpty())
}

// notShared returns what two Machines of a set do not share.
func notShared(m, first *capi.Machine) []string {
	var copied []string
	for part, shared := range map[string]bool{
		"labels":           fmt.Sprintf("%p", m.Labels) == fmt.Sprintf("%p", first.Labels),
		"annotations":      fmt.Sprintf("%p", m.Annotations) == fmt.Sprintf("%p", first.Annotations),
		"owner references": &m.OwnerReferences[0] == &first.OwnerReferences[0],
		"finalizers":       &m.Finalizers[0] == &first.Finalizers[0],
		"taints":           &m.Spec.Taints[0] == &first.Spec.Taints[0],
		"managed fields":   m.ManagedFields[0].FieldsV1 == first.ManagedFields[0].FieldsV1,
		"Cluster's name":   same(m.Spec.ClusterName, first.Spec.ClusterName),
		"kind":             same(m.Spec.InfrastructureRef.Kind, first.Spec.InfrastructureRef.Kind),
		"own name":         same(m.Spec.InfrastructureRef.Name, m.Name), // also within an object
	} {
		if !shared {
			copied = append(copied, part)
		}
	}
	return copied
}

// A cache's readers get copies. Whatever they do to a copy, other objects stay as they are.
func TestCopiesShareNothing(t *testing.T) {
	Expect := NewWithT(t).Expect
	s := kept.New(inherit.Policy{})
	one, other := machine("blue", 1), machine("blue", 2)
	keep(t, s.Object, one)
	keep(t, s.Object, other)
	before := other.DeepCopy()
	m := one.DeepCopy()
	m.Labels["set"], m.Annotations["new"] = "mine", "mine"
	m.OwnerReferences[0].Name, *m.OwnerReferences[0].Controller = "mine", false
	m.Finalizers[0], m.Spec.Taints[0].Key = "mine", "mine"
	raw := m.ManagedFields[0].FieldsV1.GetRawBytes()
	for i := range raw {
		raw[i] = 'x'
	}
	Expect(other).To(Equal(before))
	Expect(one.ManagedFields).To(Equal(before.ManagedFields))

	third := machine("blue", 3)
	keep(t, s.Object, third)
	third.Name, third.UID, third.ResourceVersion = other.Name, other.UID, other.ResourceVersion
	third.Spec.ProviderID, third.Spec.InfrastructureRef.Name = other.Spec.ProviderID, other.Spec.InfrastructureRef.Name
	Expect(third).To(Equal(before), "nor does an object that comes later get what a reader wrote")
}

// An informer transforms each Machine of its first list twice. The second time changes nothing, no matter who else has fields of it.
func TestMachinesAreKeptAlikeEachTime(t *testing.T) {
	Expect := NewWithT(t).Expect
	s := kept.New(inherit.Policy{})
	changed := metav1.Unix(60, 0)
	others := metav1.ManagedFieldsEntry{Manager: "manager", Operation: "Update", Time: &changed, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}
	rest := metav1.ManagedFieldsEntry{Time: &changed}
	ours := machine("blue", 1).ManagedFields[0]
	for name, tc := range map[string]struct{ sent, kept []metav1.ManagedFieldsEntry }{
		"ours":         {[]metav1.ManagedFieldsEntry{ours}, []metav1.ManagedFieldsEntry{ours, {}}},
		"both":         {[]metav1.ManagedFieldsEntry{others, ours}, []metav1.ManagedFieldsEntry{ours, rest}},
		"only others'": {[]metav1.ManagedFieldsEntry{others}, []metav1.ManagedFieldsEntry{rest}},
		"none":         {},
	} {
		m := machine("blue", 1)
		m.CreationTimestamp, m.ManagedFields = metav1.Unix(1, 0), tc.sent
		once := keep(t, s.Object, m).(*capi.Machine).DeepCopy()
		Expect(once.ManagedFields).To(Equal(tc.kept), name)
		Expect(keep(t, s.Object, m)).To(Equal(once), name)
	}
}

// A Node that comes again, such as after a lost connection, is kept as it was.
func TestNodesAreKeptAlikeEachTime(t *testing.T) {
	Expect := NewWithT(t).Expect
	s := kept.New(inherit.Policy{})
	node := func() *corev1.Node {
		n := &corev1.Node{}
		n.Name, n.Labels = own("n"), map[string]string{own("node.cluster.x-k8s.io/pool"): own("gpu"), own(corev1.LabelHostname): own("n")}
		n.Annotations = map[string]string{own("node.cluster.x-k8s.io/team"): own("a"), own("csi.volume.kubernetes.io/nodeid"): own(`{"ebs.csi.aws.com":"i-1"}`)}
		n.Spec.Taints = []corev1.Taint{{Key: own("gpu"), Effect: "NoSchedule"}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: "ExternalIP", Address: own("192.0.2.1")}, {Type: "Hostname", Address: own("n")}}
		return n
	}
	once := keep(t, s.Node, node()).(*corev1.Node)
	Expect(once.Labels).To(Equal(map[string]string{"node.cluster.x-k8s.io/pool": "gpu"}))
	Expect(once.Annotations).To(HaveKeyWithValue("node.cluster.x-k8s.io/team", "a"))
	Expect(once.Annotations).NotTo(HaveKey("csi.volume.kubernetes.io/nodeid"))
	Expect(once.Status.Addresses).To(Equal([]corev1.NodeAddress{{Type: "Hostname", Address: "n"}}))
	Expect(inherit.NodeNames(once)).To(Equal(inherit.NodeNames(node())))
	Expect(keep(t, s.Node, node())).To(Equal(once))
	Expect(keep(t, s.Node, once.DeepCopy())).To(Equal(once))

	other := keep(t, s.Node, node()).(*corev1.Node)
	Expect(&other.Spec.Taints[0]).To(BeIdenticalTo(&once.Spec.Taints[0]))
	Expect(fmt.Sprintf("%p %p", other.Labels, other.Annotations)).To(Equal(fmt.Sprintf("%p %p", once.Labels, once.Annotations)))
	tainted := node()
	tainted.Spec.Taints[0].TimeAdded = ptr.To(metav1.Unix(1, 0))
	Expect(keep(t, s.Node, tainted).(*corev1.Node).Spec.Taints).To(Equal(tainted.Spec.Taints), "when a taint was added counts")
}

// The memory of what was seen has a bound: a value takes the place of another one.
func TestRecentForgets(t *testing.T) {
	Expect := NewWithT(t).Expect
	recent := kept.NewRecent(2, func(a, b *int) bool { return *a == *b })
	one, two, otherOne := ptr.To(1), ptr.To(2), ptr.To(1)
	Expect(recent.Same(1, one)).To(BeIdenticalTo(one))
	Expect(recent.Same(2, two)).To(BeIdenticalTo(two))
	Expect(recent.Same(1, otherOne)).To(BeIdenticalTo(one))
	Expect(recent.Same(1, ptr.To(3))).To(HaveValue(Equal(3)), "a hash proves nothing")
	Expect(recent.Same(1, otherOne)).To(BeIdenticalTo(otherOne))
	Expect(recent.Same(3, two)).To(BeIdenticalTo(two))
	Expect(recent.Same(1, one)).To(BeIdenticalTo(one), "another value took its place")
}

// Informers of several kinds and clusters share at the same time.
func TestSharingAtTheSameTime(t *testing.T) {
	s := kept.New(inherit.Policy{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for n := range 200 {
				m := machine(fmt.Sprint("set-", n%7), n)
				if _, err := s.Object(m); err != nil || m.Labels["set"] != fmt.Sprint("set-", n%7) {
					t.Errorf("Machine %d has the labels %v, and the error is %v", n, m.Labels, err)
				}
			}
		})
	}
	all.Wait()
}
