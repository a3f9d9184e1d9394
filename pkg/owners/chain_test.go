// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

// TestOwner is about a Machine and its MachineSet; a MachineSet finds its MachineDeployment in the same way.
func TestOwner(t *testing.T) {
	another := machineSet("")
	another.UID = "another"
	elsewhere := machineSet("")
	elsewhere.Spec.ClusterName = "elsewhere"
	for _, tc := range []struct {
		name         string
		owner        string
		cached, live []client.Object
		noLive       bool
		// found says whether the MachineSet is found, asked how often the API server is asked.
		found bool
		asked int
	}{
		{name: "a Machine without a controller has none"},
		{name: "a cached owner is found without a call", owner: "MachineSet/ms", cached: []client.Object{machineSet("")}, live: []client.Object{machineSet("")}, found: true},
		{name: "the version of the reference does not matter", owner: "cluster.x-k8s.io/v1alpha4 MachineSet/ms", cached: []client.Object{machineSet("")}, found: true},
		{name: "an owner that the cache lacks is asked for once", owner: "MachineSet/ms", live: []client.Object{machineSet("")}, found: true, asked: 1},
		{name: "an owner that nobody has is asked for once", owner: "MachineSet/ms", asked: 1},
		{name: "without an API server to ask, an owner that is not cached is not found", owner: "MachineSet/ms", noLive: true},
		{name: "another object of the owner's name is not the owner", owner: "MachineSet/ms", cached: []client.Object{another}, live: []client.Object{another}, asked: 1},
		{name: "the owner that has taken another object's name is asked for", owner: "MachineSet/ms", cached: []client.Object{another}, live: []client.Object{machineSet("")}, found: true, asked: 1},
		{name: "an owner of another Cluster is none", owner: "MachineSet/ms", cached: []client.Object{elsewhere}},
		{name: "a controller of another group is none", owner: "machine.openshift.io/v1beta1 MachineSet/ms", cached: []client.Object{machineSet("")}},
		{name: "a controller of another kind is none", owner: "MachineDeployment/ms", cached: []client.Object{machineSet("")}},
		{name: "a reference that cannot be read is none", owner: "a/b/c MachineSet/ms", cached: []client.Object{machineSet("")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			cache, live := holds(t, tc.cached...), holds(t, tc.live...)
			chain := Chain{Reader: admission(cache, live, nil)}
			if tc.noLive {
				chain.Reader = cache
			}
			ms, err := chain.MachineSet(t.Context(), machine("m", tc.owner))
			Expect(err).NotTo(HaveOccurred())
			Expect(ms != nil).To(Equal(tc.found))
			Expect(live.gets).To(Equal(tc.asked))
			Expect(cache.gets).To(BeNumerically("<=", 1))
		})
	}
}

// Each owner that is looked up counts once, by where it was found.
func TestLookUpsAreCounted(t *testing.T) {
	Expect := NewWithT(t).Expect
	var counted []metrics.LookupResult
	count := func(result metrics.LookupResult) { counted = append(counted, result) }
	broken := &reader{err: errors.New("timeout")}
	m := machine("m", "MachineSet/ms")
	for _, reader := range []client.Reader{
		admission(holds(t, machineSet("")), holds(t), count),
		admission(holds(t), holds(t, machineSet("")), count),
		admission(holds(t), holds(t), count),
		admission(holds(t), nil, count),
		admission(holds(t), broken, count),
		admission(broken, nil, count),
	} {
		chain := Chain{Reader: reader}
		_, _ = chain.MachineSet(t.Context(), m) // the errors are others' business
	}
	Expect(counted).To(Equal([]metrics.LookupResult{
		metrics.Cached, metrics.Live, metrics.Missing, metrics.Missing, metrics.LookupFailed, metrics.LookupFailed,
	}))
}

func TestMachineDeployment(t *testing.T) {
	Expect := NewWithT(t).Expect
	chain := Chain{Reader: holds(t, machineDeployment("md"))}
	md, err := chain.MachineDeployment(t.Context(), machineSet("MachineDeployment/md"))
	Expect(err).NotTo(HaveOccurred())
	Expect(md).NotTo(BeNil())

	elsewhere := machineSet("MachineDeployment/md")
	elsewhere.Spec.ClusterName = "elsewhere"
	Expect(chain.MachineDeployment(t.Context(), elsewhere)).To(BeNil())
}

func TestErrorsAreReturned(t *testing.T) {
	Expect := NewWithT(t).Expect
	broken := &reader{err: errors.New("timeout")}
	cached := Chain{Reader: admission(broken, holds(t, machineSet("")), nil)}
	_, err := cached.MachineSet(t.Context(), machine("m", "MachineSet/ms"))
	Expect(err).To(MatchError("getting owner ns/ms: timeout"))
	_, err = cached.Cluster(t.Context(), "ns", "c")
	Expect(err).To(MatchError("getting Cluster ns/c: timeout"))
	live := Chain{Reader: admission(holds(t), broken, nil)}
	_, err = live.MachineSet(t.Context(), machine("m", "MachineSet/ms"))
	Expect(err).To(MatchError("getting owner ns/ms: timeout"))
}

// A chain that bites its tail is followed no further than the rules go.
func TestCyclesAreHarmless(t *testing.T) {
	Expect := NewWithT(t).Expect
	chain := Chain{Reader: admission(holds(t, machineSet("MachineSet/ms"), machine("m", "Machine/m")), holds(t), nil)}
	ms, err := chain.MachineSet(t.Context(), machine("m", "MachineSet/ms"))
	Expect(err).NotTo(HaveOccurred())
	Expect(ms).NotTo(BeNil())
	Expect(chain.MachineDeployment(t.Context(), ms)).To(BeNil())
	Expect(chain.MachineSet(t.Context(), machine("m", "Machine/m"))).To(BeNil())
}

func TestCluster(t *testing.T) {
	Expect := NewWithT(t).Expect
	live := holds(t, &clusterv1.Cluster{ObjectMeta: named("new", "")})
	chain := Chain{Reader: admission(holds(t, &clusterv1.Cluster{ObjectMeta: named("c", "")}), live, nil)}
	cluster, err := chain.Cluster(t.Context(), "ns", "c")
	Expect(err).NotTo(HaveOccurred())
	Expect(cluster).NotTo(BeNil())
	Expect(chain.Cluster(t.Context(), "ns", "")).To(BeNil())
	Expect(chain.Cluster(t.Context(), "other", "c")).To(BeNil())
	Expect(chain.Cluster(t.Context(), "ns", "new")).To(BeNil())
	Expect(live.gets).To(BeZero(), "a Cluster is never worth a call")
}

// The API server's answer must not be mixed with the object of the same name that the cache still has: a client decodes
// into what it is given.
func TestTheLiveOwnerIsReadAfresh(t *testing.T) {
	Expect := NewWithT(t).Expect
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"MachineSet",
			"metadata":{"namespace":"ns","name":"ms","uid":"ms"},"spec":{"clusterName":"c","template":{"metadata":{"labels":{"new":"1"}}}}}`))
	}))
	defer server.Close()
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(clusterv1.GroupVersion.WithKind("MachineSet"), apimeta.RESTScopeNamespace)
	live, err := client.New(&rest.Config{Host: server.URL}, client.Options{Scheme: newScheme(t), Mapper: mapper})
	Expect(err).NotTo(HaveOccurred())
	before := machineSet("")
	before.UID = "before"
	declaring(&before.Spec.Template, "old")

	chain := Chain{Reader: admission(holds(t, before), live, nil)}
	ms, err := chain.MachineSet(t.Context(), machine("m", "MachineSet/ms"))

	Expect(err).NotTo(HaveOccurred())
	Expect(ms).NotTo(BeNil())
	Expect(ms.Spec.Template.Labels).To(Equal(map[string]string{"new": "1"}))
}
