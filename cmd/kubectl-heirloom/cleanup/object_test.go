// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/cleanup"
	"github.com/heirloom-dev/heirloom/test/fleet"
)

// world is an API server with Heirloom's Lease, Cluster x, and its Machine m and MachineSet ms, which have inherited the label team.
type world struct {
	client.Client
	out bytes.Buffer
}

func newWorld(t *testing.T, leader string) *world {
	t.Helper()
	inherited := func(name, cluster string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "fleet", Name: name, Labels: map[string]string{"team": "ml", clusterv1.ClusterNameLabel: cluster},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "heirloom", Operation: metav1.ManagedFieldsOperationApply, APIVersion: clusterv1.GroupVersion.String(), FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:team":{}}}}`),
			}},
		}
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "hs", Name: "lease"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &leader, LeaseDurationSeconds: ptr.To(int32(3600)), RenewTime: ptr.To(metav1.NewMicroTime(time.Now())),
	}}
	return &world{Client: fleet.Server(lease,
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "x"}},
		&clusterv1.Machine{ObjectMeta: inherited("m", "x")}, &clusterv1.Machine{ObjectMeta: inherited("other", "y")},
		&clusterv1.MachineSet{ObjectMeta: inherited("ms", "x")}).Build()}
}

// of returns the cleanup of an object of the fleet.
func (f *world) of(kind, name string) *Object {
	return &Object{
		GroupVersionKind: clusterv1.GroupVersion.WithKind(kind), NamespacedName: types.NamespacedName{Namespace: "fleet", Name: name},
		Client: f, Kinds: []schema.GroupVersionKind{clusterv1.GroupVersion.WithKind("MachineSet"), clusterv1.GroupVersion.WithKind("Machine")},
		Lease: types.NamespacedName{Namespace: "hs", Name: "lease"}, Out: &f.out,
	}
}

func (f *world) stored(t *testing.T, object client.Object, name string) client.Object {
	t.Helper()
	NewWithT(t).Expect(f.Get(t.Context(), types.NamespacedName{Namespace: "fleet", Name: name}, object)).To(Succeed())
	return object
}

// givesUp cleans up an object as the loop would.
func (f *world) givesUp(t *testing.T, kind, name string) {
	t.Helper()
	changed, _, err := cleanup.Object(t.Context(), f, f, clusterv1.GroupVersion.WithKind(kind), types.NamespacedName{Namespace: "fleet", Name: name}, cleanup.Mode{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(changed).To(BeTrue())
}

// An object is cleaned up when the loop has given up its entries. A Cluster is cleaned up when its objects have no more entries of Heirloom.
func TestCleanUp(t *testing.T) {
	const labeled, cleaned = " labeled in namespace fleet\n", " cleaned up in namespace fleet\n"
	for _, tc := range []struct {
		name, leader, kind, object string
		loops                      bool
		takes                      time.Duration
		says, problem              string
	}{
		{name: "a Machine", leader: "pod", kind: "Machine", object: "m", loops: true, takes: 2 * time.Second, says: "machine.cluster.x-k8s.io/m" + labeled + "machine.cluster.x-k8s.io/m" + cleaned},
		{name: "a Cluster", leader: "pod", kind: "Cluster", object: "x", loops: true, takes: 6 * time.Second, says: "cluster.cluster.x-k8s.io/x" + labeled + "cluster.cluster.x-k8s.io/x" + cleaned},
		{name: "nobody leads", kind: "Machine", object: "m", says: "machine.cluster.x-k8s.io/m" + labeled,
			problem: "no replica of Heirloom seems to lead (Lease hs/lease): the cleanup happens as soon as a replica leads"},
		{name: "the loop does not", leader: "pod", kind: "Cluster", object: "x", takes: 2 * time.Minute, says: "cluster.cluster.x-k8s.io/x" + labeled,
			problem: "after 2m0s, Heirloom still owns entries in 2 objects: "},
		{name: "it is not there", leader: "pod", kind: "Machine", object: "none", problem: "labeling machine.cluster.x-k8s.io/none in namespace fleet: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				f, begun := newWorld(t, tc.leader), time.Now()
				if tc.loops {
					time.AfterFunc(1500*time.Millisecond, func() { f.givesUp(t, "Machine", "m") })
					time.AfterFunc(5500*time.Millisecond, func() { f.givesUp(t, "MachineSet", "ms") })
				}
				err := f.of(tc.kind, tc.object).CleanUp(t.Context())
				Expect(time.Since(begun)).To(Equal(tc.takes))
				Expect(f.out.String()).To(Equal(tc.says))
				if tc.problem != "" {
					Expect(err).To(MatchError(HavePrefix(tc.problem)))
					return
				}
				Expect(err).NotTo(HaveOccurred())
				object := &metav1.PartialObjectMetadata{}
				object.SetGroupVersionKind(clusterv1.GroupVersion.WithKind(tc.kind))
				Expect(f.stored(t, object, tc.object).GetLabels()).To(HaveKeyWithValue("heirloom.dev/ignore", "cleanup"))
				<-time.After(time.Minute) // in the test's fake time: the loop goes on
			})
		})
	}
}

func TestValidateKinds(t *testing.T) {
	kinds := []schema.GroupVersionKind{
		{Group: "controlplane.cluster.x-k8s.io", Version: "v1", Kind: "CP"}, {Group: "infrastructure.cluster.x-k8s.io", Version: "v1", Kind: "InfraMachine"}, clusterv1.GroupVersion.WithKind("Machine"),
	}
	for gvk, can := range map[schema.GroupVersionKind]bool{
		clusterv1.GroupVersion.WithKind("Cluster"): true, kinds[0]: true, kinds[1]: false, kinds[2]: true, clusterv1.GroupVersion.WithKind("MachineHealthCheck"): false, {Version: "v1", Kind: "Node"}: false,
	} {
		err := (&Object{GroupVersionKind: gvk, Kinds: kinds}).Validate()
		NewWithT(t).Expect(err == nil).To(Equal(can), "%s: %v", gvk, err)
	}
}
