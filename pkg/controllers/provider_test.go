// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// silent is a mapper that cannot ask the API server which kinds it serves.
type silent struct {
	meta.RESTMapper
	err error
}

func (s silent) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, s.err
}

// upgraded is a mapper of an API server in which a provider serves another version in place of the first.
type upgraded struct {
	meta.RESTMapper
	to atomic.Value
}

func (u *upgraded) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapping, err := u.RESTMapper.RESTMapping(kind, versions...)
	if version, ok := u.to.Load().(string); ok && err == nil {
		newer := *mapping
		newer.GroupVersionKind.Version = version
		return &newer, nil
	}
	return mapping, err
}

func TestAProviderIsWatchedInEachVersionThatItServes(t *testing.T) {
	for name, tc := range map[string]struct {
		objects []client.Object
		kind    schema.GroupVersionKind
	}{
		"an InfraMachine": {
			[]client.Object{withExternal("FakeMachine"), provider("FakeMachine", ownedBy("m", "Machine/m"))},
			schema.GroupVersionKind{Group: inherit.InfrastructureGroup, Kind: "FakeMachine"},
		},
		"a Machine's control plane": {
			[]client.Object{machine("m", "FakeControlPlane/cp"), controlPlane()},
			schema.GroupVersionKind{Group: inherit.ControlPlaneGroup, Kind: "FakeControlPlane"},
		},
		"a Cluster's control plane": {
			[]client.Object{managedCluster(), clusterClass("team=ml"), managed(controlPlane())},
			schema.GroupVersionKind{Group: inherit.ControlPlaneGroup, Kind: "FakeControlPlane"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, tc.objects...)
			mapper := &upgraded{RESTMapper: l.mapper}
			l.Chain.Mapper, l.Admission.Changes = mapper, l.admissions
			l.server.Scheme().AddKnownTypeWithName(tc.kind.GroupKind().WithVersion("v1beta3"), &unstructured.Unstructured{}) // or the fake client does, late
			l.start()
			for _, version := range []string{"v1beta2", "v1beta3"} {
				mapper.to.Store(version)
				_, _ = l.reconcile(tc.objects[0]) // nothing is stored in that version
				l.eventually(func() bool { return l.informers.asked(tc.kind.GroupKind().WithVersion(version)) }).Should(BeTrue(), version)
			}
		})
	}
}

func TestAControlPlaneThatNoTopologyManagesIsNotRead(t *testing.T) {
	for name, change := range map[string]func(*clusterv1.Cluster){
		"the Cluster has no topology":        func(c *clusterv1.Cluster) { c.Spec.Topology = clusterv1.Topology{} },
		"it has no control plane":            func(c *clusterv1.Cluster) { c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{} },
		"its control plane is no provider's": func(c *clusterv1.Cluster) { c.Spec.ControlPlaneRef.APIGroup = "example.com" },
		"the API server does not serve it":   func(c *clusterv1.Cluster) { c.Spec.ControlPlaneRef.Kind = "UnknownControlPlane" },
	} {
		t.Run(name, func(t *testing.T) {
			cluster := managedCluster()
			change(cluster)
			l := newLoop(t, cluster, clusterClass("team=ml"), managed(controlPlane()))
			l.serve("example.com", "FakeControlPlane")
			l.Expect(l.see(cluster)).To(Succeed())
			l.wrote()
		})
	}
}

// serve makes the API server serve a kind that must not be read.
func (l *loop) serve(group, kind string) {
	l.mapper.Add(schema.GroupVersionKind{Group: group, Version: "v1beta2", Kind: kind}, meta.RESTScopeNamespace)
	l.broken.set(kind, errors.New("it was read"))
}

func TestAControlPlaneWhoseSchemaIsNotKnownWaits(t *testing.T) {
	l := newLoop(t, managedCluster(), clusterClass("team=ml"), managed(controlPlane()))
	l.schemas.err = errors.New("no schema")
	l.Expect(l.see(managedCluster())).To(MatchError(l.schemas.err))
	l.wrote()
}

// A control plane inherits only what the schema of its kind has room for.
func TestAControlPlaneInheritsWhatItHasRoomFor(t *testing.T) {
	class := clusterClass("team=ml")
	class.Spec.ControlPlane.Taints = []clusterv1.MachineTaint{{Key: "gpu", Effect: "NoSchedule", Propagation: "Always"}}
	for _, tc := range []struct {
		name string
		has  func(path ...string) bool
		body string
	}{
		{"all of it", func(...string) bool { return true }, `{"metadata":{"labels":{"team":"ml"}},"spec":{"machineTemplate":{` +
			`"metadata":{"labels":{"team":"ml"}},"spec":{"taints":[{"effect":"NoSchedule","key":"gpu","propagation":"Always"}]}}}}`},
		{"metadata of Machines", func(path ...string) bool { return path[len(path)-1] == "metadata" }, machineOnly},
		{"its own labels", func(...string) bool { return false }, top},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLoop(t, managedCluster(), class.DeepCopy(), managed(controlPlane()))
			l.schemas.has = tc.has
			l.Expect(l.see(managedCluster())).To(Succeed())
			l.wrote("heirloom applies FakeControlPlane ns/cp@999 " + tc.body)
		})
	}
}

// A kind of which nobody knows whether it is served is looked at again; so is the Machine or Cluster that names it.
func TestAKindThatCannotBeLookedUpIsTriedAgain(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		if !s.provider {
			return // it names no kind of a provider
		}
		unanswered := errors.New("discovery failed")
		l.Chain.Mapper = silent{l.mapper, unanswered}
		l.Expect(l.see(s.about)).To(MatchError(unanswered))
		l.wrote()
	})
}

// A kind that is not served may be served later, and no event tells of it.
func TestAKindThatIsNotServedIsLookedForAgain(t *testing.T) {
	for name, about := range map[string]func() client.Object{
		"of an InfraMachine": func() client.Object {
			m := withExternal("FakeMachine")
			m.Spec.InfrastructureRef.Kind = "Unknown"
			return m
		},
		"of a Machine's control plane": func() client.Object {
			m := machine("m", "FakeControlPlane/cp")
			m.OwnerReferences[0].Kind = "UnknownControlPlane"
			return m
		},
		"of a Cluster's control plane": func() client.Object {
			cluster := managedCluster()
			cluster.Spec.ControlPlaneRef.Kind = "UnknownControlPlane"
			return cluster
		},
	} {
		t.Run(name, func(t *testing.T) {
			object := about()
			l := newLoop(t, object)
			result, err := l.reconcile(object)
			l.Expect(err).NotTo(HaveOccurred())
			l.Expect(result.RequeueAfter).To(BeNumerically("~", 15*time.Minute, 5*time.Minute))
		})
	}
}

// Of a Machine's external objects, only those of a provider that the operator has named are read.
func TestOnlyProvidersOfTheOperatorAreRead(t *testing.T) {
	for name, change := range map[string]func(*loop, *clusterv1.Machine){
		"its group is not named": func(l *loop, _ *clusterv1.Machine) { l.ProviderGroups = []string{"example.com"} },
		"it is a template": func(l *loop, m *clusterv1.Machine) {
			l.serve(inherit.InfrastructureGroup, "FakeMachineTemplate")
			m.Spec.InfrastructureRef.Kind = "FakeMachineTemplate"
		},
		"the API server does not serve it": func(_ *loop, m *clusterv1.Machine) { m.Spec.InfrastructureRef.Kind = "Unknown" },
		"it is another Machine's":          func(_ *loop, m *clusterv1.Machine) { m.UID = "another" },
		"there is none": func(_ *loop, m *clusterv1.Machine) {
			m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{}
		},
		"the Machine is left alone": func(_ *loop, m *clusterv1.Machine) {
			m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := withExternal("FakeMachine")
			l := newLoop(t, theCluster(), machineSet("team=ml"), externalObject("FakeMachine"))
			change(l, m)
			l.Expect(l.server.Create(t.Context(), m)).To(Succeed())
			l.Expect(l.see(m)).To(Succeed())
			l.wrote()
		})
	}
}

// What is wrong with a Machine or with one of its external objects does not keep the others waiting.
func TestOneExternalDoesNotWaitForTheOther(t *testing.T) {
	m := machine("m", "MachineSet/ms")
	m.Spec.InfrastructureRef = withExternal("FakeMachine").Spec.InfrastructureRef
	m.Spec.Bootstrap = withExternal("FakeConfig").Spec.Bootstrap
	l := newLoop(t, theCluster(), machineSet("team=ml"), m, externalObject("FakeMachine"), externalObject("FakeConfig"))
	l.refuse = errors.New("no rights")
	l.Expect(l.see(m)).To(MatchError(l.refuse))
	l.wrote("heirloom applies Machine ns/m@999 "+top, "heirloom applies FakeMachine ns/beside@999 "+top, "heirloom applies FakeConfig ns/beside@999 "+top)
	l.refuse = nil
	l.broken.set("FakeMachine", errors.New("no cache"))
	l.Expect(l.see(m)).To(MatchError(l.broken.of("FakeMachine")))
	l.wrote("heirloom applies Machine ns/m@999 "+top, "heirloom applies FakeConfig ns/beside@999 "+top)
	for _, object := range []client.Object{m, externalObject("FakeConfig")} {
		l.Expect(l.stored(object).GetLabels()).To(HaveKey("team"))
	}
}
