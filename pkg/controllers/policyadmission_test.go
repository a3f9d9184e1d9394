// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// byPolicy is a loop that admits Nodes by policy, that way, and a workload cluster whose API server answers lists of policies
// with an error, if there is one.
func byPolicy(t *testing.T, err error, objects ...client.Object) (*loop, workload.ByPolicy, client.WithWatch) {
	t.Helper()
	l := newLoop(t, objects...)
	l.own.Store(&client.ObjectKey{})
	server := interceptor.NewClient(l.connect("c"), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if list.GetObjectKind().GroupVersionKind().Kind == "MutatingAdmissionPolicyList" && err != nil {
				return err
			}
			return c.List(ctx, list, options...)
		},
	})
	policy := workload.ByPolicy{Machines: l.Chain.EffectiveMachines, Policy: l.Policy}
	l.Admission = &workload.Admission{Default: workload.AdmitByPolicy, Ways: map[string]workload.Way{workload.AdmitByPolicy: policy}}
	l.workloads.clients[key("c")] = server
	return l, policy, server
}

// parameters returns those of the policy in the workload cluster, as one text.
func parameters(l *loop, server client.Client) string {
	all := &corev1.ConfigMapList{}
	l.Expect(server.List(l.t.Context(), all)).To(Succeed())
	l.Expect(all.Items).NotTo(BeEmpty())
	var text strings.Builder
	for _, part := range all.Items {
		_, _ = fmt.Fprint(&text, part.Data)
	}
	return text.String()
}

// The policy gives Nodes what their Machines are going to inherit, and is taken away with all that belongs to it.
func TestAPolicyAdmitsTheNodesOfItsCluster(t *testing.T) {
	other := nodeMachine("other")
	other.Spec.ClusterName = "d"
	l, policy, server := byPolicy(t, nil, theCluster(), machineSet(pool+"=late"), machine("m", "MachineSet/ms"), other)
	l.Expect(policy.Ensure(t.Context(), server, theIdentity())).To(BeTrue())
	l.Expect(parameters(l, server)).To(And(ContainSubstring("late"), ContainSubstring("id-m"), Not(ContainSubstring("other"))))
	l.Expect(parameters(l, server)).To(ContainSubstring(inherit.LabelsFromMachineAnnotation+"="+pool), "the Machine does not have it yet")
	policies, bindings := &admissionregistrationv1.MutatingAdmissionPolicyList{}, &admissionregistrationv1.MutatingAdmissionPolicyBindingList{}
	for _, list := range []client.ObjectList{policies, bindings} {
		l.Expect(server.List(t.Context(), list)).To(Succeed())
		l.Expect(meta.LenList(list)).To(Equal(1))
	}

	l.Expect(policy.Remove(t.Context(), server, theIdentity())).To(BeTrue())
	for _, list := range []client.ObjectList{policies, bindings, &corev1.ConfigMapList{}} {
		l.Expect(server.List(t.Context(), list)).To(Succeed())
		l.Expect(meta.LenList(list)).To(BeZero())
	}
	l.told()
}

// What trying again cannot mend is told on the Cluster: the loop alone brings Nodes what they inherit.
func TestAPolicyThatCannotBe(t *testing.T) {
	unknown := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "MutatingAdmissionPolicy"}}
	l, policy, server := byPolicy(t, unknown, theCluster())
	l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	l.told("Warning NoAdmissionPolicies Cluster/c: The API server of the workload cluster does not serve MutatingAdmissionPolicies")
	l.Expect(policy.Remove(t.Context(), server, theIdentity())).To(BeFalse(), "there is nothing to take away")

	failed := errors.New("no answer")
	l, policy, server = byPolicy(t, failed, theCluster())
	l.Expect(policy.Ensure(t.Context(), server, theIdentity())).Error().To(MatchError(failed))
	l.Expect(policy.Remove(t.Context(), server, theIdentity())).Error().To(MatchError(failed))
	l.broken.set("Machine", errors.New("no cache"))
	l.Expect(policy.Ensure(t.Context(), server, theIdentity())).Error().To(MatchError(l.broken.of("Machine")))
	l.told()
}

func TestAPolicyThatHasNoRoom(t *testing.T) {
	objects := []client.Object{theCluster()}
	for i := range 100 {
		m := nodeMachine(fmt.Sprint("m", i))
		m.Annotations = map[string]string{"node.cluster.x-k8s.io/long": fmt.Sprint(i, strings.Repeat("x", 200_000))}
		objects = append(objects, m)
	}
	l, _, server := byPolicy(t, nil, objects...)
	// Nobody reads the parameters here, and to store so many megabytes takes the fake ten seconds.
	l.workloads.clients[key("c")] = interceptor.NewClient(server, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, config runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			if kinded, ok := config.(interface{ GetKind() string }); ok && kinded.GetKind() == "ConfigMap" {
				return nil
			}
			return c.Apply(ctx, config, options...)
		},
	})
	l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	l.Expect(l.events.take()).To(ConsistOf(
		MatchRegexp(`^Warning AdmissionPolicyFull Cluster/c: .* have no room for \d+ Machines`), HavePrefix("Normal WorkloadAdmissionRegistered Cluster/c: ")))
}

// crowd is a cache with so many Machines. The first has a Node already.
type crowd struct {
	client.Reader
	machines int
}

func (c crowd) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}

func (c crowd) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if machines, ok := list.(*clusterv1.MachineList); ok {
		for i := range c.machines {
			machines.Items = append(machines.Items, *nodeMachine(fmt.Sprint("m", i)))
		}
		machines.Items[0].Labels[pool], machines.Items[0].Status.NodeRef.Name = "there", "m0"
	}
	return nil
}

// Beyond so many Machines, those whose Nodes are there already are left out.
func TestAPolicyOfVeryManyMachines(t *testing.T) {
	for machines, admitted := range map[int]types.GomegaMatcher{
		10_000: ContainSubstring(pool + "=there"),
		10_001: And(Not(ContainSubstring(pool+"=there")), ContainSubstring(pool+"=a")),
	} {
		l, policy, server := byPolicy(t, nil)
		policy.Machines = (&owners.Chain{Reader: crowd{machines: machines}}).EffectiveMachines
		l.Expect(policy.Ensure(t.Context(), server, theIdentity())).To(BeTrue())
		l.Expect(parameters(l, server)).To(admitted)
		l.told()
	}
}

// theIdentity is Cluster c.
func theIdentity() webhook.Identity {
	return webhook.Identity{NamespacedName: key("c"), UID: "c"}
}
