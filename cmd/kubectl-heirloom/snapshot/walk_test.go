// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

func walked(t *testing.T, s *server, nodes Nodes) *Tree {
	t.Helper()
	return walkedAs(t, s, nodes, false)
}

// walkedAs walks as a server with these flags does, and perhaps looks at what that skips.
func walkedAs(t *testing.T, s *server, nodes Nodes, skipNothing bool, flags ...string) *Tree {
	t.Helper()
	as, err := (&settings.Flags{ServerFlags: append(flags, "--cluster-api-taint-propagation=enabled")}).Offline()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	policy := as.Policy()
	policy.SkipNothing = skipNothing
	tree, err := s.Walk(t.Context(), key("prod"), as, policy, nodes)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return tree
}

// reasons says of each kind why its objects are left alone.
func reasons(members []*Member) map[string]inherit.Reason {
	all := map[string]inherit.Reason{}
	for _, m := range members {
		all[m.Kind] = m.Decided.Reason
		if m.Node != nil {
			all[m.Kind] = m.Node.Decided.Reason
		}
		maps.Copy(all, reasons(m.Children))
	}
	return all
}

// What the server does not watch is left alone, and shown as if it were not when that is asked for.
func TestWalkOfAnotherNamespace(t *testing.T) {
	f := fleetOf(1)
	s := serve(t, f.objects...)
	g := NewWithT(t)
	g.Expect(reasons(walkedAs(t, s, reads(f.nodes...), false, "--namespace=other").Children)).To(And(HaveLen(7), HaveEach(
		Equal(inherit.Reason("the server only watches namespace other")))))
	g.Expect(reasons(walkedAs(t, s, reads(f.nodes...), false, "--namespace=fleet").Children)).To(HaveKeyWithValue("Node", BeEmpty()))
	g.Expect(reasons(walkedAs(t, s, reads(f.nodes...), true, "--namespace=other").Children)).To(HaveKeyWithValue("Machine", BeEmpty()))
}

// InfraMachines of an API group that the server does not know are left alone.
func TestWalkOfAnotherProviderGroup(t *testing.T) {
	g, f, kind := NewWithT(t), fleetOf(1), elsewhereMachine()
	for _, object := range f.objects {
		switch o := object.(type) {
		case *clusterv1.Machine:
			o.Spec.InfrastructureRef.APIGroup, o.Spec.InfrastructureRef.Kind = kind.Group, kind.Kind
		case *unstructured.Unstructured:
			if o.GetKind() == acmeMachine().Kind {
				o.SetGroupVersionKind(kind)
			}
		}
	}
	s := serve(t, f.objects...)
	const unnamed inherit.Reason = "its API group is not among the server's --additional-provider-groups"
	g.Expect(reasons(walked(t, s, nil).Children)).To(HaveKeyWithValue(kind.Kind, unnamed))
	g.Expect(reasons(walkedAs(t, s, nil, true).Children)).To(HaveKeyWithValue(kind.Kind, unnamed), "also if nothing else is skipped")
	g.Expect(reasons(walkedAs(t, s, nil, false, "--additional-provider-groups="+kind.Group).Children)).To(HaveKeyWithValue(kind.Kind, BeEmpty()))
}

// outline writes a tree with a blank for each level.
func outline(members []*Member, indent string) string {
	var s strings.Builder
	for _, m := range members {
		s.WriteString(indent + m.Kind + "/" + m.Object.GetName())
		if m.Err != nil {
			s.WriteString(" ? " + m.Err.Error())
		}
		s.WriteString("\n" + outline(m.Children, indent+" "))
	}
	return s.String()
}

func TestWalk(t *testing.T) {
	g := NewWithT(t)
	f := fleetOf(2)
	tree := walked(t, serve(t, f.objects...), reads(f.nodes...))
	g.Expect(outline(tree.Children, "")).To(Equal(`AcmeControlPlane/cp
 Machine/cp-0
  AcmeMachine/cp-0
  Node/node-cp-0
MachineDeployment/md
 MachineSet/md-1
  Machine/md-1-000
   AcmeMachine/md-1-000
   Node/node-md-1-000
  Machine/md-1-001
   AcmeMachine/md-1-001
   Node/node-md-1-001
 MachineSet/md-2
MachinePool/pool
 Node/node-pool-0
MachineSet/alone
 Machine/alone-0
  AcmeMachine/alone-0
  Node/node-alone-0
Machine/single
 AcmeMachine/single
 Node/node-single
`))
	g.Expect(outline(tree.Strangers, "")).To(Equal("Node/node-stranger\n"))
	g.Expect(tree.Class.Ref.String()).To(Equal("ClusterClass classes/quick"))
	first := tree.Children[1].Children[0].Children[0]
	g.Expect(first.Decided.Outcome).To(Equal(inherit.Inherits))
	g.Expect(first.Decided.Desired.Top.Labels).To(HaveKeyWithValue("team", "ml"))
	g.Expect(first.Has.Top.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "prod"))
	g.Expect(first.Children[1].Node.Decided.Source.Labels).To(HaveKeyWithValue("team", "ml"), "as the Machine will be")
	g.Expect(first.Children[1].Node.Sources.Of(inherit.Entry{What: "label", Name: "team"}).Ref.String()).To(Equal("MachineDeployment fleet/md"))
}

// The number of Machines does not decide about the number of calls, and other namespaces need not be readable.
func TestWalkReadsListsOnly(t *testing.T) {
	g := NewWithT(t)
	var before []string
	for _, machines := range []int{1, 50} {
		f := fleetOf(machines)
		s := serve(t, f.objects...)
		walked(t, s, reads(f.nodes...))
		g.Expect(s.asked).To(ContainElements("list MachineList fleet", "list AcmeMachineList fleet", "get ClusterClass classes/quick"))
		g.Expect(s.asked).NotTo(ContainElement(HaveSuffix("List ")), "no list of all namespaces")
		if before != nil {
			g.Expect(s.asked).To(ConsistOf(before))
		}
		before = s.asked
		walked(t, s, reads(f.nodes...))
		g.Expect(s.asked).To(HaveLen(len(before)), "a second walk asks for nothing")
	}
}

func TestAWalkOfManyClustersUsesTheListsOfAll(t *testing.T) {
	g := NewWithT(t)
	s := serve(t, fleetOf(1).objects...)
	g.Expect(s.Prefetch(t.Context())).To(Succeed())
	walked(t, s, nil)
	g.Expect(s.asked).To(ConsistOf(HaveSuffix("List "), HaveSuffix("List "), HaveSuffix("List "), HaveSuffix("List "), HaveSuffix("List "),
		HaveSuffix("List "), Equal("list AcmeMachineList fleet"), Equal("get AcmeControlPlane fleet/cp")))
}

func TestWhatCannotBeReadDoesNotEndTheWalk(t *testing.T) {
	g := NewWithT(t)
	f := fleetOf(2)
	s := serve(t, f.objects...)
	s.fails = func(_, what string) error {
		if strings.HasPrefix(what, "Acme") || strings.HasPrefix(what, "ClusterClass ") {
			return errors.New("conversion webhook failed")
		}
		return nil
	}
	tree := walked(t, s, func(context.Context, types.NamespacedName) (client.Reader, error) { return nil, errors.New("no route") })
	g.Expect(tree.NodesErr).To(MatchError("no route"))
	g.Expect(tree.Class.Err).To(MatchError(ContainSubstring("conversion webhook failed")))
	all := outline(tree.Children, "")
	g.Expect(all).To(ContainSubstring("AcmeControlPlane/cp ? getting owner AcmeControlPlane fleet/cp: conversion webhook failed\n"))
	g.Expect(all).To(ContainSubstring("Machine/cp-0 ? getting owner AcmeControlPlane fleet/cp: conversion webhook failed\n AcmeMachine/cp-0 ? conversion webhook failed\n"))
	g.Expect(all).To(ContainSubstring("  Machine/md-1-000\n   AcmeMachine/md-1-000 ? conversion webhook failed\n"))
	g.Expect(s.asked).To(HaveLen(6+3), "lists, and once the class, the control plane and the InfraMachines")
}

func TestWhatIsNamedAndDoesNotExist(t *testing.T) {
	g := NewWithT(t)
	f := fleetOf(0)
	f.cluster.Spec.Topology.ClassRef.Name, f.cluster.Spec.ControlPlaneRef.Name = "gone", "gone"
	s := serve(t, f.objects...)
	tree := walked(t, s, nil)
	g.Expect(tree.Class.Err).To(MatchError(errGone))
	g.Expect(outline(tree.Children[:1], "")).To(Equal("AcmeControlPlane/gone ? it does not exist\n"))
	as, err := (&settings.Flags{}).Offline()
	g.Expect(err).NotTo(HaveOccurred())
	_, err = s.Walk(t.Context(), key("nobody"), as, inherit.Policy{}, nil)
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue())

	f.cluster.Spec.Topology, f.cluster.Spec.ControlPlaneRef.Kind = clusterv1.Topology{}, "OtherControlPlane"
	tree = walked(t, serve(t, f.objects...), nil)
	g.Expect(tree.Class).To(BeNil())
	g.Expect(outline(tree.Children[:1], "")).To(Equal("OtherControlPlane/gone ? the API server does not serve its kind\n"))
}

// A Node that is skipped still belongs to its Machine or MachinePool.
func TestNodesOfSkippedOwners(t *testing.T) {
	g := NewWithT(t)
	f := fleetOf(1)
	f.cluster.Spec.Paused = new(true)
	tree := walked(t, serve(t, f.objects...), reads(f.nodes...))
	g.Expect(outline(tree.Strangers, "")).To(Equal("Node/node-stranger\n"))
	all := outline(tree.Children, "")
	g.Expect(all).To(ContainSubstring("MachinePool/pool\n Node/node-pool-0\n"))
	g.Expect(all).To(ContainSubstring("  Machine/md-1-000\n   AcmeMachine/md-1-000\n   Node/node-md-1-000\n"))
}

func TestAWalkOfWhatIsPut(t *testing.T) {
	g := NewWithT(t)
	s := serve(t, fleetOf(1).objects...)
	put := kind(&clusterv1.Machine{ObjectMeta: named("single", nil)})
	put.Spec.ClusterName = "other"
	s.Put(asUnstructured(t, *put, func(*unstructured.Unstructured) {}))
	g.Expect(outline(walked(t, s, nil).Children, "")).NotTo(ContainSubstring("Machine/single"))
}

func TestNodesAreReadOnce(t *testing.T) {
	g := NewWithT(t)
	f := fleetOf(1)
	calls := 0
	workload := serve(t, node("single"))
	nodes := Nodes(func(context.Context, types.NamespacedName) (client.Reader, error) {
		calls++
		return workload.Client, nil
	}).Once()
	s := serve(t, f.objects...)
	for range 2 {
		g.Expect(outline(walked(t, s, nodes).Children, "")).To(ContainSubstring("Machine/single\n AcmeMachine/single\n Node/node-single\n"))
	}
	g.Expect(calls).To(Equal(1))
	g.Expect(workload.asked).To(Equal([]string{"list NodeList "}))
	failing := Nodes(func(context.Context, types.NamespacedName) (client.Reader, error) {
		calls++
		return nil, errors.New("no Secret")
	}).Once()
	for range 2 {
		_, err := failing(t.Context(), key("prod"))
		g.Expect(err).To(MatchError("no Secret"))
	}
	g.Expect(calls).To(Equal(2))
}
