// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/sim/fakeclient"
)

// serve makes the API server serve a kind whose reads fail.
func (l *loop) serve(group, kind string) {
	l.mapper.Add(schema.GroupVersionKind{Group: group, Version: "v1beta2", Kind: kind}, meta.RESTScopeNamespace)
	l.broken[kind] = errors.New("it was read")
}

func TestControlPlanesWithoutTopologyAreNotRead(t *testing.T) {
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
			l.serve("example.com", "AcmeControlPlane")
			l.Expect(l.see(cluster)).To(Succeed())
			l.wrote()
		})
	}
}

// undiscovered is the RESTMapper of an API server that does not answer discovery.
type undiscovered struct{ meta.RESTMapper }

var errDiscovery = errors.New("discovery failed")

func (undiscovered) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errDiscovery
}

// If discovery of a kind fails, the loop looks again at the object and at the Machine or Cluster that names the kind.
func TestFailedDiscoveryIsRetried(t *testing.T) {
	each(t, func(l *loop, s *scene) {
		if !s.provider {
			return // it names no kind of a provider
		}
		l.Chain.Mapper = undiscovered{}
		l.Expect(l.see(s.about)).To(MatchError(errDiscovery))
		l.wrote()
	})
}

// The loop looks again for a kind that is not served: no event reports when the API server begins to serve it.
func TestUnservedKindsAreRetried(t *testing.T) {
	infra, m, cluster := withExternal(external(fakeclient.InfraMachine)), machine("m", "AcmeControlPlane/cp"), managedCluster()
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
			l.serve(inherit.InfrastructureGroup, "AcmeMachineTemplate")
			m.Spec.InfrastructureRef.Kind = "AcmeMachineTemplate"
		},
		"it is another Machine's": func(_ *loop, m *clusterv1.Machine) { m.UID = "another" },
		"there is none": func(_ *loop, m *clusterv1.Machine) {
			m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{}
		},
		"the Machine is skipped": func(_ *loop, m *clusterv1.Machine) { m.Annotations = pairs(clusterv1.PausedAnnotation) },
	} {
		t.Run(name, func(t *testing.T) {
			infra := external(fakeclient.InfraMachine)
			m := withExternal(infra)
			l := newLoop(t, theCluster(), machineSet("team=ml"), infra)
			change(l, m)
			l.Expect(l.server.Create(t.Context(), m)).To(Succeed())
			l.Expect(l.see(m)).To(Succeed())
			l.wrote()
		})
	}
}

const unavailable = "Warning ProviderKindUnavailable Cluster/c: " +
	"Objects that depend on a AcmeMachine.infrastructure.cluster.x-k8s.io inherit nothing for now"

// A kind that the API server cannot list in time delays only the objects that depend on it. The loop retries them one by one, with backoff,
// until the list succeeds. An Event on the Cluster reports the failure.
func TestUnlistableKindsDelayOnlyTheirObjects(t *testing.T) {
	inUse(t, func(t *testing.T) {
		m, infra, config := machine("m", "MachineSet/ms"), external(fakeclient.InfraMachine), external(fakeclient.BootstrapConfig)
		refer(m, infra, config)
		l := newLoop(t, theCluster(), machineSet("team=ml"), m, infra, config)
		l.broken["AcmeMachine"] = hanging{apierrors.NewTimeoutError("failed waiting for the informer to sync", 0)}
		began := time.Now()
		l.Expect(apierrors.IsTimeout(l.see(m))).To(BeTrue())
		l.Expect(time.Since(began)).To(Equal(10 * time.Second))
		l.wrote("applies Machine/m", "applies AcmeConfig/acmeconfig")
		l.told(unavailable)

		again, err := l.look(m)
		l.Expect(err).NotTo(HaveOccurred())
		l.Expect(again).To(BeNumerically("~", 5*time.Second, 100*time.Millisecond))
		<-time.After(again)
		clear(l.broken)
		l.Expect(l.see(m)).To(Succeed())
		l.wrote("applies AcmeMachine/acmemachine")
		l.told()
	})
}

// Writes of a kind that are not answered occupy one worker, and an Event reports them. Other kinds go on.
func TestUnansweredWritesOfAKindDelayOnlyTheirObjects(t *testing.T) {
	inUse(t, func(t *testing.T) {
		m, other := machine("m", "MachineSet/ms"), machine("other", "MachineSet/ms")
		infra, config := external(fakeclient.InfraMachine), external(fakeclient.BootstrapConfig)
		others := provider(fakeclient.InfraMachine, ownedBy("others", "Machine/other"))
		refer(m, infra, config)
		refer(other, others)
		l := newLoop(t, theCluster(), machineSet("team=ml"), m, other, infra, config, others)
		l.Client = interceptor.NewClient(l.Client.(client.WithWatch), interceptor.Funcs{
			Apply: func(ctx context.Context, c client.WithWatch, config runtime.ApplyConfiguration, options ...client.ApplyOption) error {
				if l.kindOf(config.(client.Object)) == "AcmeMachine" { //nolint:forcetypeassert // it panics
					<-ctx.Done()
					return fmt.Errorf("applying: %w", ctx.Err())
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
		l.Expect(l.look(other)).To(Equal(102*time.Millisecond), "the only slot is taken")
		<-ended
		for _, object := range []client.Object{m, other, config} {
			l.Expect(l.stored(object).GetLabels()).To(HaveKey("team"))
		}
		l.told("Warning InheritanceFailed AcmeMachine/acmemachine: ", unavailable)
		l.Expect(l.look(other)).To(BeNumerically("~", 5*time.Second, 100*time.Millisecond), "nothing is sent for now")
	})
}
