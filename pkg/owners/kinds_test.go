// SPDX-License-Identifier: Apache-2.0

package owners_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// A control plane is read in the API server's preferred version, for every version in the reference, or none. Without a mapper it is read in
// the version of the reference.
func TestVersionOfAControlPlane(t *testing.T) {
	mapper := apimeta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: inherit.ControlPlaneGroup, Version: "v1beta2"}})
	mapper.Add(controlPlaneKind("AcmeControlPlane").WithVersion("v1beta2"), apimeta.RESTScopeNamespace)
	for _, tc := range []struct {
		version, kind string
		mapper        apimeta.RESTMapper
		found         bool
	}{
		{"v1alpha1", "AcmeControlPlane", mapper, true},
		{"v1beta1", "AcmeControlPlane", mapper, true},
		{"", "AcmeControlPlane", mapper, true},
		{"v1beta1", "GoneControlPlane", mapper, false},
		{"v1beta2", "AcmeControlPlane", nil, true},
	} {
		Expect, cache := NewWithT(t).Expect, holds(t, controlPlane("c"))
		ref := &metav1.OwnerReference{APIVersion: inherit.ControlPlaneGroup + "/" + tc.version, Kind: tc.kind, Name: "cp"}
		object, cp, err := (&owners.Chain{Cache: cache, Mapper: tc.mapper}).ControlPlane(t.Context(), "ns", ref)
		Expect(err).NotTo(HaveOccurred())
		Expect(object != nil).To(Equal(tc.found), "%+v", tc)
		Expect(cp != nil).To(Equal(tc.found), "%+v", tc)
		if !tc.found {
			Expect(cache.asked).To(BeEmpty(), "a kind that is gone is not asked for")
			continue
		}
		Expect(cache.asked).To(Equal([]string{acme + " AcmeControlPlane cp"}))
		Expect(cp.GroupVersionKind().String()).To(Equal(acme + ", Kind=AcmeControlPlane"))
		Expect(cp.Spec.MachineTemplate.Labels).To(Equal(map[string]string{"fromControlPlane": "1"}))
	}
	away := serving()
	away.err = errors.New("connection refused")
	for want, chain := range map[string]*owners.Chain{
		"finding the served version of AcmeControlPlane: connection refused": {Cache: holds(t, controlPlane("c")), Mapper: &owners.Kinds{Discovery: away}},
		"getting owner AcmeControlPlane /cp: timeout":                        from(fails(errors.New("timeout"))),
	} {
		_, _, err := chain.ControlPlane(t.Context(), "", &metav1.OwnerReference{APIVersion: acme, Kind: "AcmeControlPlane", Name: "cp"})
		NewWithT(t).Expect(err).To(MatchError(want), "it is not gone")
	}
	gone := from(fails(&apimeta.NoKindMatchError{GroupKind: controlPlaneKind("AcmeControlPlane")}))
	NewWithT(t).Expect(gone.MachineOwner(t.Context(), machine("m", byControlPlane))).To(HaveField("Outcome", inherit.OwnerNotFound), "its provider was uninstalled")
}

// unsynced is a cache whose informers of providers' kinds never sync: a read waits until its context ends.
type unsynced struct{ *reader }

func (r unsynced) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, ok := into.(runtime.Unstructured); ok {
		<-ctx.Done()
		return apierrors.NewTimeoutError("failed waiting for the informer to sync", 0)
	}
	return r.reader.Get(ctx, key, into, options...)
}

const listTimeout = 250 * time.Millisecond

// In admission, a control plane of a kind without a synced informer costs a short wait and one GET. The loop waits until its
// context ends, and returns a timeout error.
func TestControlPlanesOfAnUnlistableKind(t *testing.T) {
	for _, tc := range []struct {
		name    string
		live    client.Reader
		found   bool
		counted metrics.LookupResult
		problem string
		takes   time.Duration
	}{
		{name: "the API server has it", live: holds(t, controlPlane("c")), found: true, counted: metrics.Live, takes: listTimeout},
		{name: "the API server has it not", live: holds(t), counted: metrics.Missing, takes: listTimeout},
		{name: "the API server cannot tell either", live: fails(errors.New("out of order")), counted: metrics.LookupFailed, problem: "out of order", takes: listTimeout},
		{name: "the loop", problem: "failed waiting for the informer to sync", takes: 10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			Expect, start := NewWithT(t).Expect, time.Now()
			var counted []metrics.LookupResult
			chain := admission(unsynced{holds(t)}, tc.live)
			if chain.Freshness = owners.FromCacheElseLive; tc.live == nil {
				chain.Freshness = owners.FromCache
			}
			chain.Count = func(result metrics.LookupResult) { counted = append(counted, result) }
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			owner, err := chain.MachineOwner(ctx, machine("m", byControlPlane))
			Expect(time.Since(start)).To(Equal(tc.takes), tc.name)
			if tc.live != nil {
				Expect(counted).To(Equal([]metrics.LookupResult{tc.counted}), tc.name)
			}
			Expect(owner.Template != nil).To(Equal(tc.found), tc.name)
			if tc.problem == "" {
				Expect(err).NotTo(HaveOccurred(), tc.name)
				return
			}
			Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			Expect(apierrors.IsTimeout(err)).To(Equal(tc.live == nil))
		})
	}
}

// A Node inherits from its Machine as it is, and hardly waits for the control plane, in admission and in the loop. The Machine releases
// taints that Cluster API refuses even so: otherwise every write would fail.
func TestNodesDoNotWaitForAnUnlistableKind(t *testing.T) {
	for _, freshness := range []owners.Freshness{owners.FromCacheElseLive, owners.FromCache} {
		synctest.Test(t, func(t *testing.T) {
			Expect, start := NewWithT(t).Expect, time.Now()
			chain := admission(unsynced{holds(t, machine("m", byControlPlane, provided), ofCluster("c"))}, fails(errors.New("it was asked")))
			chain.Freshness = freshness
			found, err := chain.Within(itself).SourceOf(t.Context(), inherit.ReadNode(node("n aws:1"), time.Time{}), inherit.Policy{})
			Expect(err).NotTo(HaveOccurred())
			Expect(found).To(HaveField("Source.String()", "Machine ns/m"))
			Expect(time.Since(start)).To(Equal(listTimeout))
			start = time.Now()
			Expect(chain.NodeSources(t.Context(), found.Source).Err).To(HaveOccurred())
			Expect(time.Since(start)).To(Equal(listTimeout))

			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			typed := machine("m", byControlPlane)
			typed.Spec.Taints = []clusterv1.MachineTaint{{Key: "gpu", Effect: "NoSchedule", Propagation: "Always"}}
			released, err := owners.Machines.Evaluate(ctx, chain, typed, inherit.Policy{ClusterAPITaints: inherit.PropagationDisabled})
			Expect(err).NotTo(HaveOccurred())
			Expect(released.TaintsRefused).To(BeTrue())
			_, err = owners.Machines.Evaluate(ctx, chain, typed, inherit.Policy{})
			Expect(err).To(HaveOccurred())
		})
	}
}

// A Node of a control plane gets the entries that rule 1 will add to the control plane, as far as its kind has the fields. Without the
// schema, a write of the control plane fails.
func TestRoomInAControlPlane(t *testing.T) {
	class := clusterClass()
	class.Spec.ControlPlane.MachineInfrastructure.TemplateRef = clusterv1.ClusterClassTemplateReference{APIVersion: acme, Kind: "AcmeMachineTemplate", Name: "t"}
	class.Spec.ControlPlane.Taints = []clusterv1.MachineTaint{{Key: "fromClass", Effect: "NoSchedule", Propagation: "Always"}}
	for _, tc := range []struct {
		name, fields, problem string
		labels, taint         bool
	}{
		{name: "all that there is room for", fields: "metadata taints", labels: true, taint: true},
		{name: "no taints where the kind has none", fields: "metadata", labels: true},
		{name: "no labels where the kind has none", fields: "taints", taint: true},
		{name: "nothing while nobody can tell", problem: "no schema"},
		{name: "nothing where nobody is asked", problem: "the schema of control planes is unknown"},
	} {
		Expect := NewWithT(t).Expect
		chain := from(holds(t, managedCluster(), class, machine("m", byControlPlane, isNode), controlPlane("c", ofTopology))).Within(itself)
		if tc.name != "nothing where nobody is asked" {
			chain.Layout = func(_ context.Context, gvk schema.GroupVersionKind) (inherit.Layout, error) {
				if tc.problem != "" {
					return inherit.Layout{}, errors.New(tc.problem)
				}
				return inherit.ControlPlaneLayout(gvk.Version, func(path ...string) bool { return slices.Contains(strings.Fields(tc.fields), path[len(path)-1]) }), nil
			}
		}
		decided, err := chain.SourceOf(t.Context(), inherit.ReadNode(node("n"), time.Time{}), inherit.Policy{})
		Expect(err).NotTo(HaveOccurred())
		Expect(decided.Source.Labels).To(HaveKey("fromControlPlane"))
		Expect(decided.Source.Labels["fromClass"]+decided.Source.Labels["fromCluster"] == "11").To(Equal(tc.labels), tc.name)
		Expect(len(decided.Source.Declares().Taints) > 0).To(Equal(tc.taint), tc.name)
		_, err = owners.ControlPlanes.Content(t.Context(), chain, children()["ControlPlane"])
		Expect(fmt.Sprint(err)).To(Equal(cmp.Or(tc.problem, "<nil>")), tc.name)
	}
}

// discovered serves these kinds of control planes in discovery, and counts requests.
type discovered struct {
	discovery.DiscoveryInterface
	version string
	kinds   []string
	err     error
	// during is called during each request.
	during func()
	asked  atomic.Int32
}

func (d *discovered) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	d.asked.Add(1)
	d.during()
	if d.err != nil {
		return nil, nil, d.err
	}
	in := metav1.GroupVersionForDiscovery{GroupVersion: inherit.ControlPlaneGroup + "/" + d.version, Version: d.version}
	list := &metav1.APIResourceList{GroupVersion: in.GroupVersion}
	for _, kind := range d.kinds {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: kind + "s", Kind: kind, Namespaced: true})
	}
	group := &metav1.APIGroup{Name: inherit.ControlPlaneGroup, Versions: []metav1.GroupVersionForDiscovery{in}, PreferredVersion: in}
	return []*metav1.APIGroup{group}, []*metav1.APIResourceList{list}, nil
}

func serving(kinds ...string) *discovered {
	return &discovered{version: "v1beta1", kinds: kinds, during: func() {}}
}

func controlPlaneKind(kind string) schema.GroupKind {
	return schema.GroupKind{Group: inherit.ControlPlaneGroup, Kind: kind}
}

// For any number of forged kinds, the API server is asked for its kinds once per period. Then a new kind is found. A failed discovery
// removes no kind, and is not repeated for each request.
func TestUnknownKindsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect, server := NewWithT(t).Expect, serving()
		kinds := &owners.Kinds{Discovery: server, UnknownFor: time.Minute}
		gone, away := MatchError(apimeta.IsNoMatchError, "is no match"), MatchError("away")
		for looks, now := range []struct {
			err                 error
			serves              []string
			acme, newer, forged OmegaMatcher
		}{
			{errors.New("away"), nil, away, away, away},
			{nil, []string{"AcmeControlPlane"}, Succeed(), gone, gone},
			{nil, []string{"AcmeControlPlane", "NewControlPlane"}, Succeed(), Succeed(), gone},
			{errors.New("away"), nil, Succeed(), Succeed(), away},
		} {
			server.err, server.kinds = now.err, now.serves
			for i := range 100 {
				for kind, want := range map[string]OmegaMatcher{"NewControlPlane": now.newer, "AcmeControlPlane": now.acme, fmt.Sprintf("Forged%d", i): now.forged} {
					_, err := kinds.RESTMapping(controlPlaneKind(kind))
					Expect(err).To(want, "%s, look %d", kind, looks)
				}
			}
			Expect(server.asked.Load()).To(BeEquivalentTo(looks + 1))
			<-time.After(time.Minute)
		}
	})
}

// A provider may be upgraded to another version while Heirloom runs. No request waits for the discovery of the new version.
func TestKindsMayChangeTheirVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect, server := NewWithT(t).Expect, serving("AcmeControlPlane")
		kinds := &owners.Kinds{Discovery: server, KnownFor: time.Minute}
		version := func() string {
			mapping, err := kinds.RESTMapping(controlPlaneKind("AcmeControlPlane"))
			Expect(err).NotTo(HaveOccurred())
			return mapping.GroupVersionKind.Version
		}
		Expect(version()).To(Equal("v1beta1"))
		server.version = "v1beta2"
		<-time.After(time.Minute - 1)
		Expect(version()).To(Equal("v1beta1"))
		synctest.Wait()
		Expect(server.asked.Load()).To(BeEquivalentTo(1))
		<-time.After(1)
		Expect(version()).To(Equal("v1beta1"), "it does not wait")
		synctest.Wait()
		Expect(version()).To(Equal("v1beta2"))
		Expect(server.asked.Load()).To(BeEquivalentTo(2))

		server.err = errors.New("away")
		<-time.After(time.Minute)
		for range 3 {
			Expect(version()).To(Equal("v1beta2"), "known kinds stay")
			synctest.Wait()
		}
		Expect(server.asked.Load()).To(BeEquivalentTo(3))
	})
}

// While the API server does not answer, requests wait for one discovery, for half a second at most.
func TestHangingDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect, start := NewWithT(t).Expect, time.Now()
		server, release := serving("AcmeControlPlane"), make(chan struct{})
		server.during = func() { <-release }
		kinds := &owners.Kinds{Discovery: server, UnknownFor: time.Hour}
		var asking sync.WaitGroup
		for i := range 500 {
			asking.Go(func() {
				_, err := kinds.RESTMapping(controlPlaneKind(fmt.Sprintf("Forged%d", i)))
				Expect(err).To(MatchError("the API server does not list its kinds in time"))
			})
		}
		asking.Wait()
		Expect(time.Since(start)).To(Equal(500 * time.Millisecond))
		close(release)
		synctest.Wait()
		_, err := kinds.RESTMapping(controlPlaneKind("AcmeControlPlane"))
		Expect(err).NotTo(HaveOccurred())
		Expect(server.asked.Load()).To(BeEquivalentTo(1))
	})
}
