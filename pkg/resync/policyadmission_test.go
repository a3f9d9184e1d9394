// SPDX-License-Identifier: Apache-2.0

package resync_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
)

// byPolicy is a loop that admits Nodes by policy, and a workload cluster whose API server serves these kinds.
func byPolicy(t *testing.T, kinds []string, objects ...client.Object) (*loop, client.Client) {
	t.Helper()
	l := newLoop(t, objects...)
	l.own.Store(&client.ObjectKey{})
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	for _, kind := range kinds {
		mapper.Add(admissionregistrationv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	l.connect("c")
	server := fake.NewClientBuilder().WithRESTMapper(mapper).Build()
	l.workloads.clients[key("c")] = server
	l.Admission = &workload.Admission{Default: workload.AdmitByPolicy, Ways: map[string]workload.Way{
		workload.AdmitByPolicy: workload.ByPolicy{Machines: l.Chain.EffectiveMachines, Policy: l.Policy},
	}}
	return l, server
}

// The policy gives Nodes what their Machines are going to inherit, and is taken away with all that belongs to it.
func TestAPolicyAdmitsTheNodesOfItsCluster(t *testing.T) {
	other, there := nodeMachine("other"), nodeMachine("there")
	other.Spec.ClusterName, there.Status.NodeRef.Name = "d", "there"
	l, server := byPolicy(t, []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}, theCluster(), machineSet(pool+"=late"),
		machine("m", "MachineSet/ms"), other, there)
	l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	l.told("Normal WorkloadAdmissionRegistered Cluster/c: ")
	parameters := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: policy.Namespace, Name: policy.Name}}
	l.Expect(server.Get(t.Context(), client.ObjectKeyFromObject(parameters), parameters)).To(Succeed())
	l.Expect(parameters.Data["machines"]).To(Equal("1\tid-m"), "of its own Machines, those without a Node")
	l.Expect(parameters.Data["c.1"]).To(And(ContainSubstring("late"),
		ContainSubstring(inherit.LabelsFromMachineAnnotation+"="+pool)), "the Machine does not have it yet")

	cluster := theCluster()
	l.change(cluster, func() { cluster.Labels = pairs(workload.AdmissionLabel + "=none") })
	l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	l.told("Normal WorkloadAdmissionRemoved Cluster/c: ")
	for _, list := range []client.ObjectList{
		&admissionregistrationv1.MutatingAdmissionPolicyList{}, &admissionregistrationv1.MutatingAdmissionPolicyBindingList{}, &corev1.ConfigMapList{},
	} {
		l.Expect(server.List(t.Context(), list)).To(Succeed())
		l.Expect(meta.LenList(list)).To(BeZero(), fmt.Sprintf("%T", list))
	}
}

// What trying again cannot mend is told on the Cluster: the loop alone brings Nodes what they inherit.
func TestAPolicyThatCannotBe(t *testing.T) {
	l, _ := byPolicy(t, nil, theCluster())
	l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	l.told("Warning NoAdmissionPolicies Cluster/c: The API server of the workload cluster does not serve MutatingAdmissionPolicies")
	l.broken.set("Machine", errors.New("no cache"))
	l.Expect(l.seeWorkload(key("c"))).To(MatchError(l.broken.of("Machine")))
	l.told("Warning WorkloadAdmissionFailed Cluster/c: ")
}

// Machines without a Node wake a Cluster whose Nodes are admitted by policy, and no other, once for all that change within a second.
func TestMachinesWakeClustersThatHavePolicies(t *testing.T) {
	t.Parallel()
	l, f := awake(t)
	l.own.Store(&client.ObjectKey{})
	policy, ok := l.Admission.Ways[workload.AdmitByPolicy].(*way)
	l.Expect(ok).To(BeTrue())
	ensured := func() []string {
		return slices.DeleteFunc(l.asked.all(), func(line string) bool { return !strings.HasPrefix(line, "ensure") })
	}
	for _, c := range []string{"c", "d"} {
		l.asked.take()
		l.change(f[c], func() { f[c].SetLabels(pairs(workload.AdmissionLabel + "=auto")) })
		l.updated(f[c], labelled)
		l.eventually(ensured).Should(ConsistOf("ensure policy in ns/" + c))
	}
	l.eventually(l.asked.all).Should(ContainElement("remove webhook from ns/d"))
	l.asked.take()
	hasNode := func(before, after metav1.Object) {
		before.(*capi.Machine).Status.NodeRef.Name, after.(*capi.Machine).Status.NodeRef.Name = "n", "n"
	}
	getsNode := func(_, after metav1.Object) { after.(*capi.Machine).Status.NodeRef.Name = "n" }
	l.updated(f["m-d"], hasNode)
	for range 10 {
		l.updated(f["m-c"], something)
		l.updated(f["k-c"], getsNode)
	}
	l.eventually(l.asked.all).Should(Equal([]string{"ensure policy in ns/c", "remove webhook from ns/c"}))

	policy.err = &meta.NoKindMatchError{}
	l.asked.take()
	l.updated(f["d"], labelled)
	l.eventually(ensured).Should(ConsistOf("ensure policy in ns/d", "ensure webhook in ns/d"))
	l.asked.take()
	l.updated(f["m-d"], something)
	l.updated(f["c"], labelled)
	l.eventually(ensured).Should(ConsistOf("ensure policy in ns/c", "ensure webhook in ns/c"))
}
