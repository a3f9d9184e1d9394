// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// policyScene is a workload cluster without any webhook of Heirloom, and what its policy is made from.
type policyScene struct {
	*scene
	machines []*clusterv1.Machine
	rules    inherit.Policy
	round    string
}

// newPolicyScene has an API server that keeps its policy until the test has ended. When the last policy with parameters of a kind is
// deleted, Kubernetes v1.36 stops to watch that kind, and never begins again.
func newPolicyScene(t *testing.T) *policyScene {
	t.Helper()
	lent := lendLast(t, controlplane.ForWorkload(controlplane.Options{
		APIServerArgs: map[string][]string{"runtime-config": {admissionregistrationv1beta1.SchemeGroupVersion.String() + "=true"}},
	}))
	needsPolicies(t, lent.ControlPlane)
	s := sceneOn(t, lent, stage.Options{WithoutWebhooks: true, WithoutProgram: true})
	t.Cleanup(func() { s.Expect(refusedKubeletRequests(t, s.audit, "")).To(BeEmpty(), "no create may ever fail") })
	additional := []*regexp.Regexp{regexp.MustCompile("team|zone|^note")}
	return &policyScene{scene: s, rules: inherit.Policy{AdditionalLabels: additional, AdditionalAnnotations: additional}}
}

// of is the same scene inside a subtest, with other Machines.
func (s *policyScene) of(t *testing.T, machines ...*clusterv1.Machine) *policyScene {
	within := *s
	within.scene, within.machines = s.in(t), machines
	return &within
}

// A policy in the workload cluster's API server does what the rules say, from the first Machine to its removal.
func TestAdmissionPolicy(t *testing.T) {
	t.Parallel()
	s := newPolicyScene(t)
	for _, step := range []struct {
		name string
		test func(*testing.T, *policyScene)
	}{
		{"in v1beta1", testAdmissionPolicyInV1beta1},
		{"it equals the rules", testAdmissionPolicyEqualsTheRules},
		{"it leaves other writes alone", testAdmissionPolicyLeavesOtherWritesAlone},
		{"many Machines", testAdmissionPolicyWithManyMachines},
		{"from the first Machine to its removal", testAdmissionPolicyFromTheFirstMachineToItsRemoval},
	} {
		t.Run(step.name, func(t *testing.T) { step.test(t, s) })
	}
}

// ensure writes the policy with its parameters, and waits until the API server acts by them. Each round has a Machine of
// its own, and the Node that this would have tells when.
func (s *policyScene) ensure() {
	s.t.Helper()
	s.round = fmt.Sprint(time.Now().UnixNano())
	s.ensureRound()
}

// ensureRound is the same once more.
func (s *policyScene) ensureRound() {
	s.t.Helper()
	probe := declaring("probe")
	probe.Annotations["node.cluster.x-k8s.io/round"] = s.round
	var machines []inherit.Machine
	for _, m := range append([]*clusterv1.Machine{probe}, s.machines...) {
		machines = append(machines, inherit.Machine{Actual: m, Effective: m})
	}
	cluster := types.NamespacedName{Namespace: "fleet", Name: "prod"}
	s.Expect(policy.Ensure(s.ctx, s.Client, cluster, machines, s.rules)).Error().To(Succeed())
	s.eventuallyRegisters(stage.Node("probe"), func(g Gomega, node *corev1.Node) {
		g.Expect(node.Annotations).To(HaveKeyWithValue("node.cluster.x-k8s.io/round", s.round))
	})
}

// eventuallyRegisters waits until a kubelet's create would give this Node; it is never refused meanwhile.
func (s *policyScene) eventuallyRegisters(node *corev1.Node, check func(Gomega, *corev1.Node)) {
	s.t.Helper()
	kubelet := s.kubelet(node.Name)
	s.Eventually(func(g Gomega) {
		made := node.DeepCopy()
		s.Expect(kubelet.Create(s.ctx, made, client.DryRunAll)).To(Succeed())
		check(g, made)
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}

// bare is the Node as the API server alone would make it: the policy is for kubelets only.
func (s *policyScene) bare(node *corev1.Node) *corev1.Node {
	s.t.Helper()
	bare := node.DeepCopy()
	s.Expect(s.Client.Create(s.ctx, bare, client.DryRunAll)).To(Succeed())
	return bare
}

// expected is what the rules make of it, by the Machines that have no Node yet.
func (s *policyScene) expected(bare *corev1.Node) inherit.NodeState {
	s.t.Helper()
	var machines []*clusterv1.Machine
	for _, m := range s.machines {
		if m.Status.NodeRef.Name == "" {
			machines = append(machines, m)
		}
	}
	m := inherit.Match(bare, machines)
	if m == nil {
		return inherit.OfNode(bare, time.Now())
	}
	state, dropped := s.rules.Node(inherit.SourceOfMachine(m), inherit.OfNode(bare, time.Now()), inherit.Kubelet)
	s.Expect(dropped.Problems()).NotTo(HaveOccurred())
	return state
}

// What a kubelet's create brings is what the rules say, for every Machine and every kubelet.
func testAdmissionPolicyEqualsTheRules(t *testing.T, all *policyScene) {
	taken, again, controller := addressed("taken", "10.0.0.3", "10.0.0.4"), addressed("again", "10.0.0.5"), declaringAll("controller")
	taken.Status.NodeRef.Name, again.Status.NodeRef.Name = "another", "again"
	controller.Labels[clusterv1.MachineControlPlaneLabel] = ""
	s := all.of(t, declaringAll("all"), declaringAll("retainted"), declaringAll("guarded"), declaringAll("liar"), declaringAll("lonely"),
		declaring("nothing"), controller, addressed("by-address", "10.0.0.1"), addressed("by-name", "by-name"),
		addressed("twin-a", "10.0.0.2"), addressed("twin-b", "10.0.0.2"), taken, again)
	s.ensure()
	for _, tc := range []struct {
		name, node string
		change     func(*corev1.Node)
		nothing    bool
	}{
		{name: "labels, annotations and taints of every sort", node: "all"},
		{name: "a Machine that declares nothing is recorded and guarded all the same", node: "nothing"},
		{name: "a control plane's Node is not guarded", node: "controller"},
		{name: "a kubelet's own taints stay, and the declared value wins", node: "retainted", change: func(node *corev1.Node) {
			node.Spec.Taints, _ = taint.ParseList("gpu=no:NoSchedule,gpu=no:NoExecute,mine:NoSchedule")
			node.Labels["team"] = "theirs"
			node.Annotations = map[string]string{"node.cluster.x-k8s.io/note": "theirs", "mine": "yes"}
		}},
		{name: "a kubelet that brings the guard", node: "guarded", change: func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{clusterv1.NodeUninitializedTaint} }},
		{name: "a kubelet that claims to have been here before", node: "liar", change: func(node *corev1.Node) {
			node.Annotations = map[string]string{clusterv1.TaintsFromMachineAnnotation: "mine:NoSchedule", inherit.UninitializedAnnotation: "added",
				clusterv1.LabelsFromMachineAnnotation: "a", inherit.TaintsFromMachineAnnotation: "x:NoSchedule", inherit.LabelsFromMachineAnnotation: "b"}
		}},
		{name: "a Node that is found by an address", node: "addressed", change: anonymous("10.0.0.9", "10.0.0.1")},
		{name: "a Node that is found by its name", node: "by-name", change: anonymous()},
		{name: "a Node that registers again waits for the loop", node: "again", change: anonymous("10.0.0.5"), nothing: true},
		{name: "a Node that may be either of two Machines", node: "twin", change: anonymous("10.0.0.2"), nothing: true},
		{name: "a Node with the address of another Node's Machine", node: "late", change: anonymous("10.0.0.3"), nothing: true},
		{name: "a Node without a Machine", node: "stranger", nothing: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := *s
			p.scene = s.in(t)
			node := stage.Node(tc.node)
			if tc.change != nil {
				tc.change(node)
			}
			bare := p.bare(node)
			want := p.expected(bare)
			p.Expect(want.Equal(inherit.OfNode(bare, time.Now()))).To(Equal(tc.nothing), "the case is what its name says")
			p.Expect(p.kubelet(node.Name).Create(p.ctx, node)).To(Succeed())
			p.Expect(inherit.OfNode(node, time.Now())).To(Equal(want))
		})
	}
	s.besideAnotherPolicy()
}

// besideAnotherPolicy has another policy add a taint, and a letter to an annotation whenever it is invoked.
func (s *policyScene) besideAnotherPolicy() {
	s.t.Helper()
	node := stage.Node("lonely")
	want := s.expected(s.bare(node))
	meddler := &admissionregistrationv1.MutatingAdmissionPolicy{}
	s.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(policy.AdmissionPolicy(admissionregistrationv1.SchemeGroupVersion, s.rules).Object, meddler)).To(Succeed())
	meddler.ObjectMeta = metav1.ObjectMeta{Name: "meddler"}
	meddler.Spec.ParamKind, meddler.Spec.Variables, meddler.Spec.MatchConditions = nil, nil, nil
	meddler.Spec.Mutations[0].JSONPatch.Expression = `
(has(object.metadata.annotations) ? [] : [JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}]) +
[JSONPatch{op: 'add', path: '/metadata/annotations/rounds', value: object.metadata.?annotations.?rounds.orValue('') + 'x'}] +
(has(object.spec.taints) ? [] : [JSONPatch{op: 'add', path: '/spec/taints', value: []}]) +
(object.?spec.?taints.orValue([]).exists(t, t.key == 'meddler') ? [] : [
  JSONPatch{op: 'add', path: '/spec/taints/-', value: {'key': 'meddler', 'effect': 'NoSchedule'}}])`
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "meddler"}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "meddler"},
	}
	s.create(meddler, binding)
	s.eventuallyRegisters(node, func(g Gomega, made *corev1.Node) { g.Expect(made.Annotations["rounds"]).To(HavePrefix("xx")) })

	s.Expect(s.kubelet(node.Name).Create(s.ctx, node)).To(Succeed())
	delete(node.Annotations, "rounds")
	s.Expect(node.Labels).To(Equal(want.Labels))
	s.Expect(node.Annotations).To(Equal(want.Annotations))
	s.Expect(node.Spec.Taints).To(ConsistOf(append(want.Taints, corev1.Taint{Key: "meddler", Effect: corev1.TaintEffectNoSchedule})))

	// The next test that has the API server is not meddled with.
	s.Expect(s.Client.Delete(s.ctx, binding)).To(Succeed())
	s.eventuallyRegisters(stage.Node("left"), func(g Gomega, made *corev1.Node) { g.Expect(made.Annotations).NotTo(HaveKey("rounds")) })
}

// Nobody's writes are touched but a kubelet's create of its own Node.
func testAdmissionPolicyLeavesOtherWritesAlone(t *testing.T, all *policyScene) {
	s := all.of(t, declaringAll("mine"), declaringAll("admins"))
	s.ensure()
	admins := stage.Node("admins")
	s.create(admins)
	s.Expect(admins.Annotations).To(BeEmpty())

	node, kubelet := stage.Node("mine"), s.kubelet("mine")
	s.Expect(kubelet.Create(s.ctx, node)).To(Succeed())
	s.update(node, func() { node.Spec.Taints, node.Annotations = nil, nil })
	before := node.DeepCopy()
	node.Labels["mine"] = "yes"
	s.Expect(kubelet.Patch(s.ctx, node, client.MergeFrom(before))).To(Succeed())
	before = node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	s.Expect(kubelet.Status().Patch(s.ctx, node, client.MergeFrom(before))).To(Succeed())
	s.Expect(inherit.OfNode(node, time.Now()).Equal(inherit.NodeState{Labels: node.Labels})).To(BeTrue(), "nothing has come back")
}

// racked is one of very many Machines.
func racked(number int) *clusterv1.Machine {
	m := addressed(fmt.Sprintf("m-%04d", number), fmt.Sprintf("10.0.%d.%d", number>>8, number&255))
	m.Status.Addresses = append(m.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: m.Name})
	m.Annotations = map[string]string{"node.cluster.x-k8s.io/rack": fmt.Sprint(number % 50)}
	m.Spec.ProviderID = "cloud:///" + strings.Repeat("zone/", 5) + m.Name
	return m
}

// The API server finds the right one among as many Machines as have room. A Node that registers while the parameters change gets what
// it inherits, each time.
func testAdmissionPolicyWithManyMachines(t *testing.T, all *policyScene) {
	s := all.of(t, declaringAll("steady"))
	s.ensure()
	missed, stop := s.stream("steady")
	for number := range 1200 {
		s.machines = append(s.machines, racked(number))
	}
	s.ensure()
	named := stage.Node("m-1100")
	anonymous("10.0.4.76", "fd00::1")(named)
	identified := stage.Node("some")
	identified.Spec.ProviderID = racked(700).Spec.ProviderID
	outsider := stage.Node("outsider")
	anonymous("10.1.1.1")(outsider)
	for _, node := range []*corev1.Node{named, identified, outsider} {
		want := s.expected(s.bare(node))
		began := time.Now()
		s.Expect(s.kubelet(node.Name).Create(s.ctx, node)).To(Succeed())
		t.Logf("Node %s was created in %s", node.Name, time.Since(began))
		s.Expect(inherit.OfNode(node, time.Now())).To(Equal(want), node.Name)
	}
	s.Expect(identified.Annotations).To(HaveKeyWithValue("node.cluster.x-k8s.io/rack", "0"))

	s.machines = s.machines[:1]
	s.ensure()
	s.Expect(stop()).NotTo(BeZero(), "Nodes that registered meanwhile")
	s.Expect(missed.Load()).To(BeZero())
}

// stream has the Node of that name register again and again. It counts those that did not inherit; stop ends it and returns how
// many there were.
func (s *policyScene) stream(name string) (missed *atomic.Int64, stop func() int64) {
	// No request is broken off: it would be in the audit log as one that failed.
	ctx, cancel := context.WithCancel(s.ctx)
	done, kubelet := make(chan int64, 1), s.kubelet(name)
	missed = &atomic.Int64{}
	go func() {
		var asked int64
		for ; ctx.Err() == nil; asked++ {
			node := stage.Node(name)
			if kubelet.Create(s.ctx, node, client.DryRunAll) != nil || node.Labels["node.cluster.x-k8s.io/pool"] != "gpu" {
				missed.Add(1)
			}
		}
		done <- asked
	}()
	return missed, func() int64 { cancel(); return <-done }
}

// Where v1beta1 alone is served, as by Kubernetes 1.34 and 1.35, the policy is written in that version. This API server serves both.
func testAdmissionPolicyInV1beta1(t *testing.T, all *policyScene) {
	s := all.of(t, declaringAll("beta"))
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(admissionregistrationv1beta1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"), meta.RESTScopeRoot)
	mapper.Add(admissionregistrationv1beta1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicyBinding"), meta.RESTScopeRoot)
	beta, err := client.New(s.AdminConfig(), client.Options{Mapper: mapper})
	s.Expect(err).NotTo(HaveOccurred())
	cluster := types.NamespacedName{Namespace: "fleet", Name: "prod"}
	machines := []inherit.Machine{{Actual: s.machines[0], Effective: s.machines[0]}}
	s.Expect(policy.Ensure(s.ctx, beta, cluster, machines, s.rules)).To(BeTrue())
	written := policy.AdmissionPolicy(admissionregistrationv1beta1.SchemeGroupVersion, s.rules)
	s.Expect(beta.Get(s.ctx, client.ObjectKeyFromObject(written), written)).To(Succeed())
	s.Expect(written.GetManagedFields()).To(HaveExactElements(HaveField("APIVersion", admissionregistrationv1beta1.SchemeGroupVersion.String())))
	node := stage.Node("beta")
	want := s.expected(s.bare(node))
	s.eventuallyRegisters(node, func(g Gomega, made *corev1.Node) { g.Expect(inherit.OfNode(made, time.Now())).To(Equal(want)) })

	versions := s.versions()
	s.Expect(policy.Ensure(s.ctx, beta, cluster, machines, s.rules)).To(BeFalse())
	s.Expect(s.versions()).To(Equal(versions), "nothing is stored")
	s.Expect(policy.Ensure(s.ctx, s.Client, cluster, machines, s.rules)).To(BeFalse(), "after an upgrade it is the same one")
}

// The parameters follow the Machines, nothing is written without need, a real kubelet registers, and nothing is left.
func testAdmissionPolicyFromTheFirstMachineToItsRemoval(t *testing.T, all *policyScene) {
	s := all.of(t)
	s.ensure()
	versions := s.versions()
	s.Expect(versions).To(HaveLen(3))
	s.ensureRound()
	s.Expect(s.versions()).To(Equal(versions), "is not written")

	m := declaringAll("real")
	s.machines = append(s.machines, m)
	s.ensure()
	m.Spec.Taints = stage.Taints(clusterv1.MachineTaintPropagationAlways, "later=yes:NoSchedule")
	s.ensure()
	kubelet := s.startKubelet(controlplane.KubeletOptions{Name: "real", RegisterWithTaints: []string{"later=no:NoSchedule"}})
	node, err := kubelet.WaitRegistered(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	s.eventually(node, func(g Gomega) { g.Expect(ready(node)).To(BeTrue()) })
	s.Expect(taint.FormatList(node.Spec.Taints)).To(And(ContainSubstring("later=yes:NoSchedule"), ContainSubstring("annotated=yes:NoSchedule"),
		ContainSubstring("node.cluster.x-k8s.io/uninitialized:NoSchedule"), Not(ContainSubstring("later=no"))))
	s.Expect(node.Labels).To(And(HaveKeyWithValue("node.cluster.x-k8s.io/pool", "gpu"), HaveKey(corev1.LabelOSStable)))

	s.Expect(policy.Remove(s.ctx, s.Client)).Error().To(Succeed())
	s.eventuallyRegisters(stage.Node("probe"), func(g Gomega, probe *corev1.Node) { g.Expect(probe.Annotations).To(BeEmpty()) })
	s.Expect(s.versions()).To(BeEmpty())
}

// versions are the resource versions of all that the policy consists of.
func (s *policyScene) versions() map[string]string {
	s.t.Helper()
	versions := map[string]string{}
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: policy.Namespace, Name: policy.Name}},
		policy.AdmissionPolicy(admissionregistrationv1.SchemeGroupVersion, s.rules), policy.Binding(admissionregistrationv1.SchemeGroupVersion),
	} {
		if s.Client.Get(s.ctx, client.ObjectKeyFromObject(object), object) == nil {
			versions[fmt.Sprintf("%T %s", object, object.GetObjectKind().GroupVersionKind().Kind)] = object.GetResourceVersion()
			s.Expect(object.GetManagedFields()).To(HaveEach(HaveField("Manager", "heirloom")))
		}
	}
	return versions
}
