// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// upgraded is the RESTMapper of an API server in which a provider has replaced the first version by another version. With err, discovery
// fails.
type upgraded struct {
	meta.RESTMapper
	to  atomic.Value
	err error
}

func (u *upgraded) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if u.err != nil {
		return nil, u.err
	}
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
			[]client.Object{withExternal("FakeMachine"), externalObject("FakeMachine")},
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
			l.Chain.Mapper = mapper
			l.server.Scheme().AddKnownTypeWithName(tc.kind.GroupKind().WithVersion("v1beta3"), &unstructured.Unstructured{}) // otherwise the fake client adds it, too late
			l.start()
			for _, version := range []string{"v1beta2", "v1beta3"} {
				mapper.to.Store(version)
				_ = l.see(tc.objects[0]) // nothing is stored in this version
				l.eventually(func() bool { return l.informers.has(tc.kind.GroupKind().WithVersion(version)) }).Should(BeTrue(), version)
			}
		})
	}
}

// serve makes the API server serve a kind whose reads fail.
func (l *loop) serve(group, kind string) {
	l.mapper.Add(schema.GroupVersionKind{Group: group, Version: "v1beta2", Kind: kind}, meta.RESTScopeNamespace)
	l.broken[kind] = errors.New("it was read")
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

// A control plane inherits only entries for which the schema of its kind has a field, and waits until the schema is known.
func TestAControlPlaneInheritsWhatItHasRoomFor(t *testing.T) {
	class := clusterClass("team=ml")
	class.Spec.ControlPlane.Taints = []clusterv1.MachineTaint{{Key: "gpu", Effect: "NoSchedule", Propagation: "Always"}}
	for name, tc := range map[string]struct {
		has  func(path ...string) bool
		body string
	}{
		"all of it": {func(...string) bool { return true }, `{"metadata":{"labels":{"team":"ml"}},"spec":{"machineTemplate":{` +
			`"metadata":{"labels":{"team":"ml"}},"spec":{"taints":[{"effect":"NoSchedule","key":"gpu","propagation":"Always"}]}}}}`},
		"metadata of Machines": {func(path ...string) bool { return path[len(path)-1] == "metadata" }, machineOnly},
		"its own labels":       {func(...string) bool { return false }, top},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, managedCluster(), class.DeepCopy(), managed(controlPlane()))
			l.schemas.has, l.schemas.err = tc.has, errors.New("no schema")
			l.Expect(l.see(managedCluster())).To(MatchError(l.schemas.err))
			l.wrote()
			l.schemas.err = nil
			l.Expect(l.see(managedCluster())).To(Succeed())
			l.wrote("heirloom applies FakeControlPlane ns/cp@999 " + tc.body)
		})
	}
}

// If discovery of a kind fails, the loop looks again at the object and at the Machine or Cluster that names the kind.
func TestAKindThatCannotBeLookedUpIsTriedAgain(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		if !s.provider {
			return // it names no kind of a provider
		}
		unanswered := errors.New("discovery failed")
		l.Chain.Mapper = &upgraded{err: unanswered}
		l.Expect(l.see(s.about)).To(MatchError(unanswered))
		l.wrote()
	})
}

// The loop looks again for a kind that is not served: no event reports when the API server begins to serve it.
func TestAKindThatIsNotServedIsLookedForAgain(t *testing.T) {
	infra, m, cluster := withExternal("FakeMachine"), machine("m", "FakeControlPlane/cp"), managedCluster()
	infra.Spec.InfrastructureRef.Kind, m.OwnerReferences[0].Kind, cluster.Spec.ControlPlaneRef.Kind = "Unknown", "Unknown", "Unknown"
	for _, about := range []client.Object{infra, m, cluster} {
		l := newLoop(t, about)
		l.Expect(l.look(about)).To(BeNumerically("~", 90*time.Second, 30*time.Second))
	}
}

// The loop reads a Machine's external objects only if the operator has named their provider.
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

// withBoth returns Machine m with an InfraMachine and a BootstrapConfig.
func withBoth(owner string) *clusterv1.Machine {
	m := machine("m", owner)
	m.Spec.InfrastructureRef, m.Spec.Bootstrap = withExternal("FakeMachine").Spec.InfrastructureRef, withExternal("FakeConfig").Spec.Bootstrap
	return m
}

const writesMachine, writesInfra, writesConfig = "heirloom applies Machine ns/m@999 " + top, "heirloom applies FakeMachine ns/beside@999 " + top,
	"heirloom applies FakeConfig ns/beside@999 " + top

const unavailable = "Warning ProviderKindUnavailable Cluster/c: Objects that depend on a %s inherit nothing for now"

// A kind that the API server cannot list in time delays only the objects that depend on it. The loop retries them one by one, with backoff,
// until the list succeeds. An Event on the Cluster reports the failure.
func TestAKindThatIsNotListedCostsOnlyItsOwn(t *testing.T) {
	inUse(t, func(t *testing.T) {
		m := withBoth("MachineSet/ms")
		l := newLoop(t, theCluster(), machineSet("team=ml"), m, externalObject("FakeMachine"), externalObject("FakeConfig"))
		l.waits("FakeMachine")
		began := time.Now()
		l.Expect(apierrors.IsTimeout(l.see(m))).To(BeTrue())
		l.Expect(time.Since(began)).To(Equal(10 * time.Second))
		l.wrote(writesMachine, writesConfig)
		l.told(fmt.Sprintf(unavailable, "FakeMachine.infrastructure.cluster.x-k8s.io"))

		again, err := l.look(m)
		l.Expect(err).NotTo(HaveOccurred())
		l.Expect(again).To(BeNumerically("~", 5*time.Second, 100*time.Millisecond))
		<-time.After(again)
		delete(l.broken, "FakeMachine")
		l.Expect(l.see(m)).To(Succeed())
		l.wrote(writesInfra)
		l.told()
	})
}

// waits makes reads of a kind block until their context ends, as for an informer that has not synced.
func (l *loop) waits(kind string) {
	l.broken[kind] = waiting{apierrors.NewTimeoutError("failed waiting for the informer to sync", 0)}
}

// waiting is the error of a read that has blocked until its context ended.
type waiting struct{ *apierrors.StatusError }

func (w waiting) Unwrap() error { return w.StatusError }

// Writes of a kind that are not answered occupy one worker, and an Event reports them. Other kinds go on.
func TestAKindWhoseWritesAreNotAnswered(t *testing.T) {
	inUse(t, func(t *testing.T) {
		m, other := withBoth("MachineSet/ms"), machine("other", "MachineSet/ms")
		other.Spec.InfrastructureRef = m.Spec.InfrastructureRef
		other.Spec.InfrastructureRef.Name = "others"
		l := newLoop(t, theCluster(), machineSet("team=ml"), m, other, externalObject("FakeMachine"), externalObject("FakeConfig"),
			provider("FakeMachine", ownedBy("others", "Machine/other")))
		l.Client = interceptor.NewClient(l.Client.(client.WithWatch), interceptor.Funcs{
			Apply: func(ctx context.Context, c client.WithWatch, config runtime.ApplyConfiguration, options ...client.ApplyOption) error {
				if kinded, ok := config.(interface{ GetKind() string }); ok && kinded.GetKind() == "FakeMachine" {
					<-ctx.Done()
					return ctx.Err()
				}
				return c.Apply(ctx, config, options...)
			},
		})
		l.running()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.Expect(l.see(m)).To(MatchError(context.DeadlineExceeded))
		}()
		<-time.After(time.Second)
		l.Expect(l.look(other)).To(Equal(2*time.Millisecond), "the only slot is taken")
		l.Expect(l.stored(other).GetLabels()).To(HaveKey("team"))
		<-ended
		l.Expect(l.stored(m).GetLabels()).To(HaveKey("team"))
		l.Expect(l.stored(externalObject("FakeConfig")).GetLabels()).To(HaveKey("team"))
		l.told("Warning InheritanceFailed FakeMachine/beside: ", fmt.Sprintf(unavailable, "FakeMachine.infrastructure.cluster.x-k8s.io"))
		l.Expect(l.look(other)).To(BeNumerically("~", 5*time.Second, 100*time.Millisecond), "nothing is sent for now")
	})
}
