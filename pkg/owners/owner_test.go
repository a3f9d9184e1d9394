// SPDX-License-Identifier: Apache-2.0

package owners_test

import (
	"cmp"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// TestOwner checks a Machine with its MachineSet; a MachineSet finds its MachineDeployment in the same way. Each owner is counted once, by
// the place where it was found.
func TestOwner(t *testing.T) {
	another := machineSet("", func(ms *clusterv1.MachineSet) { ms.UID = "another" })
	foreign := machineSet("", func(ms *clusterv1.MachineSet) { ms.Spec.ClusterName = "elsewhere" })
	ms, of := machineSet(""), func(objects ...client.Object) []client.Object { return objects }
	for _, tc := range []struct {
		name, owner  string
		cached, live []client.Object
		found        bool
		counted      []metrics.LookupResult
		requests     int
	}{
		{name: "a cached owner is found without a call", owner: "MachineSet/ms", cached: of(ms), live: of(ms), found: true, counted: []metrics.LookupResult{metrics.Cached}},
		{name: "the version of the reference does not matter", owner: "cluster.x-k8s.io/v1alpha4 MachineSet/ms", cached: of(ms), found: true, counted: []metrics.LookupResult{metrics.Cached}},
		{name: "an owner that the cache lacks is asked for once", owner: "MachineSet/ms", live: of(ms), found: true, counted: []metrics.LookupResult{metrics.Live}, requests: 1},
		{name: "an owner that nobody has is asked for once", owner: "MachineSet/ms", counted: []metrics.LookupResult{metrics.Missing}, requests: 1},
		{name: "another object of the owner's name is not the owner", owner: "MachineSet/ms", cached: of(another), live: of(another), counted: []metrics.LookupResult{metrics.Missing}, requests: 1},
		{name: "the owner that has taken another object's name is asked for", owner: "MachineSet/ms", cached: of(another), live: of(ms), found: true, counted: []metrics.LookupResult{metrics.Live}, requests: 1},
		{name: "an owner of another Cluster is none", owner: "MachineSet/ms", cached: of(foreign), counted: []metrics.LookupResult{metrics.Cached}},
		{name: "a reference that cannot be read is none", owner: "a/b/c MachineSet/ms", cached: of(ms)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect, live := NewWithT(t).Expect, holds(t, tc.live...)
			var counted []metrics.LookupResult
			chain := admission(holds(t, tc.cached...), live)
			chain.Count = func(result metrics.LookupResult) { counted = append(counted, result) }
			owner, err := chain.MachineOwner(t.Context(), machine("m", tc.owner))
			Expect(err).NotTo(HaveOccurred())
			Expect(owner.Object != nil).To(Equal(tc.found))
			Expect(counted).To(Equal(tc.counted))
			Expect(live.gets()).To(Equal(tc.requests))
		})
	}
}

// A failed lookup returns an error, and removes nothing.
func TestErrorsAreReturned(t *testing.T) {
	timeout := errors.New("timeout")
	for want, chain := range map[string]*owners.Chain{"getting Cluster ns/c: timeout": admission(fails(timeout), holds(t, world()...)), "timeout": admission(holds(t, ofCluster("c")), fails(timeout))} {
		chain.Count = func(result metrics.LookupResult) { NewWithT(t).Expect(result).To(Equal(metrics.LookupFailed)) }
		for _, object := range []metav1.Object{
			machine("m", "MachineSet/ms"), machine("m", byControlPlane), machineSet("MachineDeployment/md"),
			external("Machine/m"), external("MachineSet/ms", notYet), external(byControlPlane, notYet),
		} {
			found, err := kindOf(object).Evaluate(t.Context(), chain, object, inherit.Policy{})
			NewWithT(t).Expect(err).To(MatchError(MatchRegexp("^(getting owner .*: )?" + want + "$")))
			NewWithT(t).Expect(found.Desired).To(Equal(inherit.Object{}))
		}
	}
	cache := holds(t, world()...)
	cache.err, cache.broken = timeout, "ClusterClass"
	for kind, row := range map[string]owners.Kind{"ControlPlane": owners.ControlPlanes, "MachineDeployment": owners.MachineDeployments, "MachinePool": owners.MachinePools} {
		_, err := row.Evaluate(t.Context(), from(cache), children()[kind], inherit.Policy{})
		NewWithT(t).Expect(err).To(MatchError("getting ClusterClass ns/cc: timeout"), kind)
	}
}

// A chain with a cycle ends after the steps of the rules.
func TestCyclesAreHarmless(t *testing.T) {
	Expect := NewWithT(t).Expect
	set := machineSet("MachineSet/ms")
	chain := admission(holds(t, set, machine("m", "Machine/m")), holds(t))
	Expect(chain.MachineOwner(t.Context(), machine("m", "MachineSet/ms"))).To(HaveField("Object", Not(BeNil())))
	Expect(chain.MachineDeployment(t.Context(), set)).To(BeNil())
	Expect(chain.MachineOwner(t.Context(), machine("m", "Machine/m"))).To(HaveField("Outcome", inherit.OwnerNotFound))
}

// A live read decodes into a new object: the API server's answer must not be mixed with the cached object of the same name, nor change it.
func TestTheLiveOwnerIsReadAfresh(t *testing.T) {
	before := machineSet("", setDeclares("old"), func(ms *clusterv1.MachineSet) { ms.UID = "before" })
	ofNoCluster := machine("m", "MachineSet/ms", func(m *clusterv1.Machine) { m.Spec.ClusterName = "" })
	owner, err := admission(holds(t, before), &slow{}).MachineOwner(t.Context(), ofNoCluster)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(owner.Template).To(HaveField("Labels", BeEmpty()))
}

func TestMachineOwner(t *testing.T) {
	set, pool := machineSet("MachineDeployment/md", setDeclares("fromMachineSet")), machinePool("mp")
	declaring(&pool.Spec.Template, "fromMachinePool")
	broken := controlPlane("c")
	broken.Object["spec"] = map[string]any{"machineTemplate": "text"}
	for _, tc := range []struct {
		name, owner, label      string
		cached                  []client.Object
		missing                 bool
		brings, source, problem string
	}{
		{name: "a Machine on its own declares for itself"},
		{name: "a MachineSet's template counts, its MachineDeployment is to be edited", owner: "MachineSet/ms", cached: []client.Object{set}, brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)"},
		{name: "a MachinePool's template counts", owner: "MachinePool/mp", cached: []client.Object{pool}, brings: "fromMachinePool", source: "MachinePool ns/mp (spec.template.metadata.labels)"},
		{name: "a control plane's template counts, no matter who provides it", owner: byControlPlane, cached: []client.Object{controlPlane("c")}, brings: "fromControlPlane", source: "AcmeControlPlane ns/cp (spec.machineTemplate.metadata.labels)"},
		{name: "in a topology the Cluster is to be edited", owner: "MachineSet/ms", label: clusterv1.ClusterTopologyOwnedLabel, cached: []client.Object{set}, brings: "fromMachineSet", source: "Cluster ns/c (spec.topology)"},
		{name: "a control plane that is not there is missing", owner: byControlPlane, missing: true},
		{name: "a control plane of another Cluster is missing", owner: byControlPlane, cached: []client.Object{controlPlane("elsewhere")}, missing: true},
		{name: "a control plane of another UID is missing", owner: acme + " AcmeControlPlane/cp#another", cached: []client.Object{controlPlane("c")}, missing: true},
		{name: "a MachinePool that is not there is missing", owner: "MachinePool/mp", missing: true},
		{name: "a MachinePool of another Cluster is missing", owner: "MachinePool/mp", cached: []client.Object{change(pool.DeepCopy(), func(mp *clusterv1.MachinePool) { mp.Spec.ClusterName = "elsewhere" })}, missing: true},
		{name: "a MachinePool of another group is missing", owner: "exp.example.com/v1 MachinePool/mp", cached: []client.Object{pool}, missing: true},
		{name: "an owner that is none of ours is missing", owner: "apps/v1 Deployment/d", missing: true},
		{name: "a control plane that breaks the contract is an error", owner: byControlPlane, cached: []client.Object{broken}, problem: "reading AcmeControlPlane ns/cp"},
	} {
		Expect := NewWithT(t).Expect
		m, chain := machine("m", tc.owner), from(holds(t, tc.cached...))
		if tc.label != "" {
			label(tc.label, "")(m)
		}
		owner, err := chain.MachineOwner(t.Context(), m)
		if tc.problem != "" {
			Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			continue
		}
		Expect(err).NotTo(HaveOccurred())
		Expect(owner.Outcome == inherit.OwnerNotFound).To(Equal(tc.missing), tc.name)
		sources := chain.NodeSources(t.Context(), inherit.SourceOfMachine(m))
		Expect(sources.Of(inherit.Entry{What: "label", Name: tc.brings}).String()).To(Equal(cmp.Or(tc.source, "Machine ns/m (metadata.labels)")), tc.name)
		Expect(owner.Template != nil).To(Equal(tc.brings != ""), tc.name)
		if owner.Template != nil {
			Expect(owner.Template.Labels).To(Equal(map[string]string{tc.brings: "1"}))
		}
	}
}

// external returns the AcmeMachine ns/x of Cluster ns/c.
func external(owner string, changes ...func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "AcmeMachine"}, ObjectMeta: named("x", owner),
	}
	object.Labels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	return change(object, changes...)
}

// notYet makes the owner no controller, as before the external object has a Machine.
func notYet(object *metav1.PartialObjectMetadata) { object.OwnerReferences[1].Controller = nil }

// bootstraps makes the external object an AcmeConfig.
func bootstraps(object *metav1.PartialObjectMetadata) {
	object.TypeMeta = metav1.TypeMeta{APIVersion: "bootstrap.cluster.x-k8s.io/v1beta1", Kind: "AcmeConfig"}
}

func ofKind(apiVersion, kind string) func(*metav1.PartialObjectMetadata) {
	return func(object *metav1.PartialObjectMetadata) {
		object.TypeMeta = metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
	}
}

// refers makes a Machine refer to its external objects, both of name x.
func refers(m *clusterv1.Machine) {
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "AcmeMachine", Name: "x"}
	m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "AcmeConfig", Name: "x"}
}

func TestExternalInherits(t *testing.T) {
	ours := func(owner string, changes ...func(*clusterv1.Machine)) *clusterv1.Machine {
		return change(machine("m", owner, refers), changes...)
	}
	by, of := also[*metav1.PartialObjectMetadata], also[*clusterv1.Machine]
	set, pool := machineSet("MachineDeployment/md", setDeclares("fromMachineSet")), machinePool("mp")
	declaring(&pool.Spec.Template, "fromMachinePool")
	pausedSet, watchedSet := change(set.DeepCopy(), also[*clusterv1.MachineSet](pause)), change(set.DeepCopy(), also[*clusterv1.MachineSet](label(clusterv1.WatchLabel, "blue")))
	otherSet := change(set.DeepCopy(), func(ms *clusterv1.MachineSet) { ms.Spec.ClusterName = "other" })
	watched := inherit.Policy{WatchFilter: "blue"}
	all := func(objects ...client.Object) []client.Object { return objects }

	for _, tc := range []struct {
		name         string
		object       *metav1.PartialObjectMetadata
		policy       inherit.Policy
		cached, live []client.Object
		// brings is the inherited label; nobody means that the external object's Machine has no owner.
		brings, source string
		nobody         bool
		asked          int
	}{
		{name: "an InfraMachine inherits from its Machine's MachineSet", object: external("Machine/m"), cached: all(ours("MachineSet/ms"), set), brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)"},
		{name: "so does a BootstrapConfig", object: external("Machine/m", bootstraps), cached: all(ours("MachineSet/ms"), set), brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)"},
		{name: "and from its Machine's control plane", object: external("Machine/m"), cached: all(ours(byControlPlane), controlPlane("c")), brings: "fromControlPlane", source: "AcmeControlPlane ns/cp (spec.machineTemplate.metadata.labels)"},
		{name: "in a topology the Cluster is to be edited", object: external("Machine/m"), cached: all(ours("MachineSet/ms", of(label("topology.cluster.x-k8s.io/owned", ""))), set), brings: "fromMachineSet", source: "Cluster ns/c (spec.topology)"},
		{name: "a Machine on its own has nothing to hand down", object: external("Machine/m"), cached: all(ours("")), nobody: true, source: "Machine ns/m"},
		{name: "a Machine that does not refer to it is not its own", object: external("Machine/m"), cached: all(ours("MachineSet/ms", func(m *clusterv1.Machine) { m.Spec.InfrastructureRef.Name = "y" }), set)},
		{name: "nor is one that refers to another kind", object: external("Machine/m", ofKind("infrastructure.cluster.x-k8s.io/v1beta1", "OtherMachine")), cached: all(ours("MachineSet/ms"), set)},
		{name: "nor is one that refers to another group", object: external("Machine/m", ofKind("example.com/v1", "AcmeMachine")), cached: all(ours("MachineSet/ms"), set)},
		{name: "a Machine of another Cluster is not its own", object: external("Machine/m"), cached: all(ours("MachineSet/ms", elsewhere), otherSet)},
		{name: "a Machine of another UID is not its own", object: external("Machine/m#another"), cached: all(ours("MachineSet/ms"), set), asked: 1},
		{name: "what a MachinePool's Machine has is the pool's", object: external("Machine/m"), cached: all(ours("MachinePool/mp"), pool)},
		{name: "not even as long as nobody controls it", object: external("MachinePool/mp", notYet), cached: all(pool)},
		{name: "a Machine that the cache lacks is asked for once", object: external("Machine/m"), cached: all(set), live: all(ours("MachineSet/ms"), set), brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)", asked: 1},
		{name: "then its owner is not asked for", object: external("Machine/m"), live: all(ours("MachineSet/ms"), set), asked: 1},
		{name: "before its Machine is there, its MachineSet counts", object: external("MachineSet/ms", notYet), cached: all(set), brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)"},
		{name: "or its control plane", object: external(byControlPlane, notYet), cached: all(controlPlane("c")), brings: "fromControlPlane", source: "AcmeControlPlane ns/cp (spec.machineTemplate.metadata.labels)"},
		{name: "in a topology the Cluster is to be edited, also then", object: external("MachineSet/ms", notYet, by(label("topology.cluster.x-k8s.io/owned", ""))), cached: all(set), brings: "fromMachineSet", source: "Cluster ns/c (spec.topology)"},
		{name: "a MachineSet that the cache lacks is asked for once", object: external("MachineSet/ms", notYet), live: all(set), brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)", asked: 1},
		{name: "a MachineSet of another UID is not its own", object: external("MachineSet/ms#another", notYet), cached: all(set), live: all(set), asked: 1},
		{name: "a MachineSet of another Cluster is not its own", object: external("MachineSet/ms", notYet), cached: all(otherSet)},
		{name: "a control plane of another Cluster is not its own", object: external(byControlPlane, notYet), cached: all(controlPlane("other"))},
		{name: "a MachineSet that controls it made it for no Machine", object: external("MachineSet/ms"), cached: all(set)},
		{name: "a foreign MachineSet is none", object: external("machine.openshift.io/v1beta1 MachineSet/ms", notYet), cached: all(set)},
		{name: "a template inherits nothing", object: external("MachineSet/ms", notYet, ofKind("infrastructure.cluster.x-k8s.io/v1beta1", "AcmeMachineTemplate")), cached: all(set), live: all(set)},
		{name: "an object without its Cluster's label inherits nothing", object: external("Machine/m", by(func(o metav1.Object) { o.SetLabels(nil) })), cached: all(ours("MachineSet/ms"), set), live: all(set)},
		{name: "an external object of a paused MachineSet is skipped until it has a Machine", object: external("MachineSet/ms", notYet), cached: all(pausedSet)},
		{name: "an external object need not carry the label of a watch filter", policy: watched, object: external("Machine/m"), cached: all(ours("MachineSet/ms", of(label(clusterv1.WatchLabel, "blue"))), set), brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)"},
		{name: "its Machine must", policy: watched, object: external("Machine/m", by(label(clusterv1.WatchLabel, "blue"))), cached: all(ours("MachineSet/ms"), watchedSet)},
		{name: "or its MachineSet, until it has a Machine", policy: watched, object: external("MachineSet/ms", notYet), cached: all(watchedSet), brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect, live, before := NewWithT(t).Expect, holds(t, tc.live...), tc.object.DeepCopy()
			found := evaluate(t, admission(holds(t, append(tc.cached, ofCluster("c"))...), live), tc.object, tc.policy)
			Expect(tc.object).To(Equal(before), "the input is not mutated")
			switch {
			case tc.nobody:
				Expect(found.Outcome).To(Equal(inherit.NoOwner))
			case tc.brings == "":
				Expect(found.Untouched()).To(BeTrue())
				Expect(found.Reason).NotTo(BeEmpty())
			default:
				Expect(found.Outcome).To(Equal(inherit.Inherits))
				Expect(found.Desired.Top.Labels).To(Equal(map[string]string{tc.brings: "1"}))
				Expect(found.Sources(t.Context()).Of(inherit.Entry{What: "label", Name: tc.brings}).String()).To(Equal(tc.source))
			}
			Expect(live.gets()).To(Equal(tc.asked), "naming the source needs no request")
		})
	}
}
