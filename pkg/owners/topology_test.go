// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestClusterClass: a topology names its ClusterClass in the words of either version, and not always in its own namespace.
func TestClusterClass(t *testing.T) {
	class := func(namespace string) *clusterv1.ClusterClass {
		return change(clusterClass(), func(class *clusterv1.ClusterClass) { class.Namespace, class.UID = namespace, "in-"+class.UID })
	}
	for _, tc := range []struct {
		name     string
		topology clusterv1.Topology
		cached   []client.Object
		want     string
	}{
		{name: "a Cluster without a topology has none", cached: []client.Object{class("ns")}},
		{name: "a topology refers to it", topology: clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "cc"}}, cached: []client.Object{class("ns"), class("classes")}, want: "ns/cc"},
		{name: "in another namespace, too", topology: clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "cc", Namespace: "classes"}}, cached: []client.Object{class("ns"), class("classes")}, want: "classes/cc"},
		{name: "one of another namespace is another", topology: clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "cc"}}, cached: []client.Object{class("classes")}},
		{name: "one that is not cached is none", topology: clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "cc"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			live := holds(t, class("ns"), class("classes"))
			cluster := change(managedCluster(), func(c *clusterv1.Cluster) { c.Spec.Topology = tc.topology })
			got, err := (&Chain{Reader: admission(holds(t, tc.cached...), live, nil)}).ClusterClass(t.Context(), cluster)
			Expect(err).NotTo(HaveOccurred())
			Expect(live.gets).To(BeZero(), "a ClusterClass is never worth a call")
			if tc.want == "" {
				Expect(got).To(BeNil())
				return
			}
			Expect(got).NotTo(BeNil())
			Expect(client.ObjectKeyFromObject(got).String()).To(Equal(tc.want))
		})
	}
}

func TestClusterClassOfNoCluster(t *testing.T) {
	Expect := NewWithT(t).Expect
	class, err := (&Chain{Reader: &reader{err: errors.New("asked")}}).ClusterClass(t.Context(), nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(class).To(BeNil())
}

// Clusters are looked at again when their ClusterClass changes.
func TestClustersOf(t *testing.T) {
	Expect := NewWithT(t).Expect
	cluster := func(name string, topology clusterv1.Topology) *clusterv1.Cluster {
		return &clusterv1.Cluster{ObjectMeta: named(name, ""), Spec: clusterv1.ClusterSpec{Topology: topology}}
	}
	chain := Chain{Reader: holds(t,
		cluster("near", clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "cc"}}),
		cluster("far", clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "cc", Namespace: "classes"}}),
		cluster("another", clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "another"}}),
		cluster("none", clusterv1.Topology{}),
	)}
	near, err := chain.ClustersOf(t.Context(), clusterClass())
	Expect(err).NotTo(HaveOccurred())
	Expect(names(near)).To(ConsistOf("near"))
	far, err := chain.ClustersOf(t.Context(), change(clusterClass(), func(class *clusterv1.ClusterClass) { class.Namespace = "classes" }))
	Expect(err).NotTo(HaveOccurred())
	Expect(names(far)).To(ConsistOf("far"))
}

// versions remembers which kinds it was asked for, in which versions.
type versions struct {
	client.Reader
	asked []string
}

func (r *versions) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	r.asked = append(r.asked, into.GetObjectKind().GroupVersionKind().String())
	return r.Reader.Get(ctx, key, into, options...)
}

// The API server's preferred version of a control plane is read, whichever the reference has, or has not.
func TestVersionOfAControlPlane(t *testing.T) {
	const group = "controlplane.cluster.x-k8s.io"
	mapper := apimeta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: group, Version: "v1beta1"}})
	mapper.Add(schema.GroupVersionKind{Group: group, Version: "v1beta1", Kind: "AcmeControlPlane"}, apimeta.RESTScopeNamespace)
	for _, tc := range []struct {
		name, apiVersion, kind string
		mapper                 apimeta.RESTMapper
		asked                  []string
		found                  bool
	}{
		{name: "a reference to an older version", apiVersion: group + "/v1alpha1", kind: "AcmeControlPlane", mapper: mapper, asked: []string{acme + ", Kind=AcmeControlPlane"}, found: true},
		{name: "a reference to the same version", apiVersion: acme, kind: "AcmeControlPlane", mapper: mapper, asked: []string{acme + ", Kind=AcmeControlPlane"}, found: true},
		{name: "a reference to no version", apiVersion: group + "/", kind: "AcmeControlPlane", mapper: mapper, asked: []string{acme + ", Kind=AcmeControlPlane"}, found: true},
		{name: "a kind that is gone is not asked for", apiVersion: acme, kind: "GoneControlPlane", mapper: mapper},
		{name: "without a mapper the reference's version is read", apiVersion: acme, kind: "AcmeControlPlane", asked: []string{acme + ", Kind=AcmeControlPlane"}, found: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			cache := &versions{Reader: holds(t, controlPlane("c"))}
			object, cp, err := (&Chain{Reader: cache, Mapper: tc.mapper}).ControlPlane(t.Context(), "ns", &metav1.OwnerReference{APIVersion: tc.apiVersion, Kind: tc.kind, Name: "cp"})
			Expect(err).NotTo(HaveOccurred())
			Expect(cache.asked).To(Equal(tc.asked))
			Expect(object != nil).To(Equal(tc.found))
			Expect(cp != nil).To(Equal(tc.found))
			if tc.found {
				Expect(object.GetAPIVersion()).To(Equal(acme))
				Expect(cp.GroupVersionKind().String()).To(Equal(acme + ", Kind=AcmeControlPlane"))
				Expect(cp.Spec.MachineTemplate.Labels).To(Equal(map[string]string{"fromControlPlane": "1"}))
			}
		})
	}
}

// A discovery that fails is not a kind that is gone.
func TestVersionThatCannotBeFound(t *testing.T) {
	chain := Chain{Reader: holds(t, controlPlane("c")), Mapper: unreachable{}}
	_, _, err := chain.ControlPlane(t.Context(), "ns", &metav1.OwnerReference{APIVersion: acme, Kind: "AcmeControlPlane", Name: "cp"})
	NewWithT(t).Expect(err).To(MatchError("finding the served version of AcmeControlPlane: connection refused"))
}

type unreachable struct{ apimeta.RESTMapper }

func (unreachable) RESTMapping(schema.GroupKind, ...string) (*apimeta.RESTMapping, error) {
	return nil, errors.New("connection refused")
}
