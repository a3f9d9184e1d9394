// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"errors"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// external is ns/x of ns/c, an AcmeMachine.
func external(owner string, changes ...func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "AcmeMachine"}, ObjectMeta: named("x", owner),
	}
	object.Labels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	return change(object, changes...)
}

// notYet makes the owner one that is no controller, which it is until the external object has a Machine.
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

// by applies a change of any object's metadata.
func by(changes ...func(metav1.Object)) func(*metav1.PartialObjectMetadata) {
	return func(object *metav1.PartialObjectMetadata) {
		for _, c := range changes {
			c(object)
		}
	}
}

// refers makes a Machine refer to its external objects, both of name x.
func refers(m *clusterv1.Machine) {
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "AcmeMachine", Name: "x"}
	m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "AcmeConfig", Name: "x"}
}

func TestExternalInherits(t *testing.T) {
	ours := func(owner string, changes ...func(*clusterv1.Machine)) *clusterv1.Machine {
		return change(machine("m", owner), append([]func(*clusterv1.Machine){refers}, changes...)...)
	}
	also := func(c func(metav1.Object)) func(*clusterv1.Machine) { return func(m *clusterv1.Machine) { c(m) } }
	set := change(machineSet("MachineDeployment/md"), func(ms *clusterv1.MachineSet) { declaring(&ms.Spec.Template, "fromMachineSet") })
	pool := &clusterv1.MachinePool{ObjectMeta: named("mp", ""), Spec: clusterv1.MachinePoolSpec{ClusterName: "c"}}
	declaring(&pool.Spec.Template, "fromMachinePool")
	pausedSet := change(set.DeepCopy(), func(ms *clusterv1.MachineSet) { pause(ms) })
	watchedSet := change(set.DeepCopy(), func(ms *clusterv1.MachineSet) { label(clusterv1.WatchLabel, "blue")(ms) })
	watched := inherit.Policy{WatchFilter: "blue"}
	all := func(objects ...client.Object) []client.Object { return objects }

	for _, tc := range []struct {
		name         string
		object       *metav1.PartialObjectMetadata
		policy       inherit.Policy
		cached, live []client.Object
		// brings is the label that is inherited; nobody says that the external object's Machine has no owner.
		brings string
		nobody bool
		source string
		asked  int
	}{
		{name: "an InfraMachine inherits from its Machine's MachineSet", object: external("Machine/m"), cached: all(ours("MachineSet/ms"), set), brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)"},
		{name: "so does a BootstrapConfig", object: external("Machine/m", bootstraps), cached: all(ours("MachineSet/ms"), set), brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)"},
		{name: "and from its Machine's control plane", object: external("Machine/m"), cached: all(ours(acme+" AcmeControlPlane/cp"), controlPlane("c")), brings: "fromControlPlane", source: "AcmeControlPlane ns/cp (spec.machineTemplate.metadata.labels)"},
		{name: "in a topology the Cluster is to be edited", object: external("Machine/m"), cached: all(ours("MachineSet/ms", also(label("topology.cluster.x-k8s.io/owned", ""))), set), brings: "fromMachineSet", source: "Cluster ns/c (spec.topology)"},
		{name: "a Machine on its own has nothing to hand down", object: external("Machine/m"), cached: all(ours("")), nobody: true, source: "Machine ns/m"},

		{name: "a Machine that does not refer to it is not its own", object: external("Machine/m"), cached: all(ours("MachineSet/ms", func(m *clusterv1.Machine) { m.Spec.InfrastructureRef.Name = "y" }), set)},
		{name: "nor is one that refers to another kind", object: external("Machine/m", ofKind("infrastructure.cluster.x-k8s.io/v1beta1", "OtherMachine")), cached: all(ours("MachineSet/ms"), set)},
		{name: "nor is one that refers to another group", object: external("Machine/m", ofKind("example.com/v1", "AcmeMachine")), cached: all(ours("MachineSet/ms"), set)},
		{name: "nor is one that refers to nothing", object: external("Machine/m"), cached: all(machine("m", "MachineSet/ms"), set)},
		{name: "a Machine of another Cluster is not its own", object: external("Machine/m"), cached: all(ours("MachineSet/ms", elsewhere), change(set.DeepCopy(), func(ms *clusterv1.MachineSet) { ms.Spec.ClusterName = "other" }))},
		{name: "a Machine of another UID is not its own", object: external("Machine/m#another"), cached: all(ours("MachineSet/ms"), set), asked: 1},
		{name: "a Machine of another group is none", object: external("machine.openshift.io/v1beta1 Machine/m"), cached: all(ours("MachineSet/ms"), set)},
		{name: "what a MachinePool's Machine has is the pool's", object: external("Machine/m"), cached: all(ours("MachinePool/mp"), pool)},
		{name: "what a MachinePool has is no Machine's", object: external("MachinePool/mp"), cached: all(pool)},
		{name: "not even as long as nobody controls it", object: external("MachinePool/mp", notYet), cached: all(pool)},

		{name: "a Machine that the cache lacks is asked for once", object: external("Machine/m"), cached: all(set), live: all(ours("MachineSet/ms"), set), brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)", asked: 1},
		{name: "then its owner is not asked for", object: external("Machine/m"), live: all(ours("MachineSet/ms"), set), asked: 1},
		{name: "nor is it where the Machine is cached", object: external("Machine/m"), cached: all(ours("MachineSet/ms")), live: all(set)},
		{name: "a Machine that nobody has is asked for once", object: external("Machine/m"), asked: 1},

		{name: "before its Machine is there, its MachineSet counts", object: external("MachineSet/ms", notYet), cached: all(set), brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)"},
		{name: "or its control plane", object: external(acme+" AcmeControlPlane/cp", notYet), cached: all(controlPlane("c")), brings: "fromControlPlane", source: "AcmeControlPlane ns/cp (spec.machineTemplate.metadata.labels)"},
		{name: "in a topology the Cluster is to be edited, also then", object: external("MachineSet/ms", notYet, by(label("topology.cluster.x-k8s.io/owned", ""))), cached: all(set), brings: "fromMachineSet", source: "Cluster ns/c (spec.topology)"},
		{name: "a MachineSet that the cache lacks is asked for once", object: external("MachineSet/ms", notYet), live: all(set), brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)", asked: 1},
		{name: "so is a control plane", object: external(acme+" AcmeControlPlane/cp", notYet), live: all(controlPlane("c")), brings: "fromControlPlane", source: "AcmeControlPlane ns/cp (spec.machineTemplate.metadata.labels)", asked: 1},
		{name: "a MachineSet that nobody has is asked for once", object: external("MachineSet/ms", notYet), asked: 1},
		{name: "a MachineSet of another UID is not its own", object: external("MachineSet/ms#another", notYet), cached: all(set), live: all(set), asked: 1},
		{name: "a MachineSet of another Cluster is not its own", object: external("MachineSet/ms", notYet), cached: all(change(set.DeepCopy(), func(ms *clusterv1.MachineSet) { ms.Spec.ClusterName = "other" }))},
		{name: "a control plane of another Cluster is not its own", object: external(acme+" AcmeControlPlane/cp", notYet), cached: all(controlPlane("other"))},
		{name: "a MachineSet that controls it made it for no Machine", object: external("MachineSet/ms"), cached: all(set)},
		{name: "a foreign MachineSet is none", object: external("machine.openshift.io/v1beta1 MachineSet/ms", notYet), cached: all(set)},
		{name: "a foreign control plane is none", object: external("example.com/v1 AcmeControlPlane/cp", notYet), cached: all(controlPlane("c"))},
		{name: "a control plane's template is none", object: external(acme+" AcmeControlPlaneTemplate/cp", notYet)},
		{name: "an object without owners is nobody's", object: external(""), cached: all(set)},

		{name: "a template inherits nothing", object: external("MachineSet/ms", notYet, ofKind("infrastructure.cluster.x-k8s.io/v1beta1", "AcmeMachineTemplate")), cached: all(set), live: all(set)},
		{name: "an object without its Cluster's label inherits nothing", object: external("Machine/m", by(func(o metav1.Object) { o.SetLabels(nil) })), cached: all(ours("MachineSet/ms"), set), live: all(set)},

		{name: "a paused external object is left alone", object: external("Machine/m", by(pause)), cached: all(ours("MachineSet/ms"), set)},
		{name: "an external object that opted out is left alone", object: external("Machine/m", by(label(inherit.IgnoreLabel, ""))), cached: all(ours("MachineSet/ms"), set)},
		{name: "an external object that is being deleted is left alone", object: external("Machine/m", by(deleting)), cached: all(ours("MachineSet/ms"), set)},
		{name: "an external object of a paused Machine is left alone", object: external("Machine/m"), cached: all(ours("MachineSet/ms", also(pause)), set)},
		{name: "an external object of a paused MachineSet is left alone until it has a Machine", object: external("MachineSet/ms", notYet), cached: all(pausedSet)},
		{name: "then the Machine counts", object: external("Machine/m"), cached: all(ours("MachineSet/ms"), pausedSet), brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)"},
		{name: "an external object of a paused Cluster is left alone", object: external("Machine/m"), cached: all(&clusterv1.Cluster{ObjectMeta: named("c", ""), Spec: clusterv1.ClusterSpec{Paused: new(true)}}, ours("MachineSet/ms"), set)},
		{name: "an external object need not carry the label of a watch filter", policy: watched, object: external("Machine/m"), cached: all(ours("MachineSet/ms", also(label(clusterv1.WatchLabel, "blue"))), set), brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)"},
		{name: "its Machine must", policy: watched, object: external("Machine/m", by(label(clusterv1.WatchLabel, "blue"))), cached: all(ours("MachineSet/ms"), watchedSet)},
		{name: "or its MachineSet, until it has a Machine", policy: watched, object: external("MachineSet/ms", notYet), cached: all(watchedSet), brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)"},
		{name: "a MachineSet that another instance watches is not this one's", policy: watched, object: external("MachineSet/ms", notYet, by(label(clusterv1.WatchLabel, "blue"))), cached: all(set)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			live, before := holds(t, tc.live...), tc.object.DeepCopy()

			found, err := ExternalObjects().Evaluate(t.Context(), &Chain{Reader: admission(holds(t, tc.cached...), live, nil)}, tc.object, tc.policy)

			Expect(err).NotTo(HaveOccurred())
			Expect(live.gets).To(Equal(tc.asked))
			Expect(live.gets).To(BeNumerically("<=", 1), "an admission request costs one call at most")
			Expect(tc.object).To(Equal(before), "the input is not mutated")
			if tc.brings == "" && !tc.nobody {
				Expect(found.Untouched()).To(BeTrue())
				Expect(found.Reason).NotTo(BeEmpty())
				return
			}
			if tc.nobody {
				Expect(found.Outcome).To(Equal(inherit.NoOwner))
			} else {
				Expect(found.Outcome).To(Equal(inherit.Inherits))
			}
			if tc.brings != "" {
				source := found.Sources(t.Context()).Of(inherit.Entry{What: "label", Name: tc.brings})
				Expect(source.String()).To(Equal(tc.source))
				Expect(live.gets).To(Equal(tc.asked), "to say where it is declared costs no call")
				Expect(found.Desired.Top.Labels).To(Equal(map[string]string{tc.brings: "1"}))
			}
		})
	}
}

func TestExternalThatCannotBeLookedUp(t *testing.T) {
	broken := &reader{err: errors.New("timeout")}
	for name, chain := range map[string]*Chain{"a cache that fails": {Reader: broken}, "an API server that fails": {Reader: admission(holds(t), broken, nil)}} {
		for _, object := range []*metav1.PartialObjectMetadata{external("Machine/m"), external("MachineSet/ms", notYet), external(acme+" AcmeControlPlane/cp", notYet)} {
			found, err := ExternalObjects().Evaluate(t.Context(), chain, object, inherit.Policy{})
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("timeout")), name)
			NewWithT(t).Expect(found.Untouched()).To(BeTrue(), name)
		}
	}
}

func TestExternalRefs(t *testing.T) {
	Expect := NewWithT(t).Expect
	Expect(ExternalRefs(machine("m", ""))).To(BeEmpty())
	both := ExternalRefs(change(machine("m", ""), refers))
	Expect(both).To(HaveExactElements(HaveField("Kind", "AcmeMachine"), HaveField("Kind", "AcmeConfig")))
	Expect(ExternalRefs(change(machine("m", ""), refers, func(m *clusterv1.Machine) { m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{} }))).To(Equal(both[:1]))
	Expect(ExternalRefs(change(machine("m", ""), refers, func(m *clusterv1.Machine) { m.Spec.InfrastructureRef.Name = "" }))).To(Equal(slices.Clone(both[1:])))
}
