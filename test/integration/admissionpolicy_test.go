// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
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
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// A MutatingAdmissionPolicy in a workload cluster, without any webhook of Heirloom, adds the entries of the rules to the Node that a
// kubelet creates, also with more than a thousand Machines in its parameters and while the parameters change. It refuses no kubelet,
// Heirloom writes nothing if nothing changed, and no object of the policy stays in the end. If the API server serves only v1beta1, like
// Kubernetes 1.34 and 1.35, Heirloom writes the policy in this version.
func TestAdmissionPolicy(t *testing.T) {
	t.Parallel()
	s := newPolicyScene(t)
	s.machines = []*clusterv1.Machine{declaringAll("steady"), declaringAll("real")}
	beta := s.betaClient()
	s.Expect(s.ensure(beta)).To(BeTrue())
	written := policy.AdmissionPolicy(admissionregistrationv1beta1.SchemeGroupVersion, s.rules)
	s.Expect(beta.Get(s.ctx, client.ObjectKeyFromObject(written), written)).To(Succeed())
	s.Expect(written.GetManagedFields()).To(HaveExactElements(HaveField("APIVersion", admissionregistrationv1beta1.SchemeGroupVersion.String())))
	s.expectTheRules(stage.Node("steady"))
	s.Expect(s.versions()).To(HaveLen(3))
	s.Expect(s.ensure(reads{beta})).To(BeFalse(), "the second call writes nothing")
	s.Expect(s.ensure(reads{s.Client})).To(BeFalse(), "after an upgrade it is the same policy")

	kubelet := s.startKubelet(controlplane.KubeletOptions{Name: "real", RegisterWithTaints: []string{"gpu=no:NoSchedule"}})
	node, err := kubelet.WaitRegistered(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(taint.FormatList(node.Spec.Taints)).To(And(ContainSubstring("gpu=true:NoSchedule"), ContainSubstring("annotated=yes:NoSchedule"),
		ContainSubstring("node.cluster.x-k8s.io/uninitialized:NoSchedule"), Not(ContainSubstring("gpu=no"))))
	s.eventually(node, func(g Gomega) { g.Expect(ready(node)).To(BeTrue()) })

	s.namedKeysReach("steady")

	missed, stop := s.stream("steady")
	for number := range 1200 {
		s.machines = append(s.machines, racked(number))
	}
	s.Expect(s.ensure(s.Client)).To(BeFalse(), "only the parameters change")
	named, identified := stage.Node("m-1100"), stage.Node("some")
	named.Spec.ProviderID, identified.Spec.ProviderID = "", racked(700).Spec.ProviderID
	s.expectTheRules(named)
	s.expectTheRules(identified)
	s.machines = s.machines[:1]
	s.Expect(s.ensure(s.Client)).To(BeFalse(), "only the parameters change")
	s.eventuallyRegisters(named, func(g Gomega, made *corev1.Node) { g.Expect(made.Annotations).To(BeEmpty(), "its Machine was removed") })
	s.Expect(stop()).NotTo(BeZero(), "the number of Nodes that registered meanwhile")
	s.Expect(missed.Load()).To(BeZero())

	s.Expect(policy.Remove(s.ctx, s.Client, madeBy)).Error().To(Succeed())
	s.eventuallyRegisters(stage.Node("steady"), func(g Gomega, made *corev1.Node) { g.Expect(made.Annotations).To(BeEmpty()) })
	s.Expect(s.versions()).To(BeEmpty())
}

// namedKeysReach expects the policy to add the keys that a Cluster and its class name, and to stop when they no longer name them.
func (s *policyScene) namedKeysReach(name string) {
	s.t.Helper()
	m, cluster, class := s.machines[0], &clusterv1.Cluster{}, &clusterv1.ClusterClass{}
	m.Labels["cost-center"], m.Annotations["owner-of"] = "7", "it"
	s.Expect(s.ensure(s.Client)).To(BeFalse())
	s.expectTheRules(stage.Node(name))

	class.Annotations = map[string]string{inherit.SyncLabelsAnnotation: "cost-center, other.example.com/*"}
	cluster.Annotations = map[string]string{inherit.SyncAnnotationsAnnotation: "owner*"}
	s.rules.SyncAllowed = []string{inherit.SyncAnyKey}
	s.rules = s.rules.Of(cluster, class)
	s.Expect(s.ensure(s.Client)).To(BeFalse(), "the policy changes")
	s.eventuallyRegisters(stage.Node(name), func(g Gomega, made *corev1.Node) {
		g.Expect(made.Labels).To(HaveKeyWithValue("cost-center", "7"))
		g.Expect(made.Annotations).To(HaveKeyWithValue("owner-of", "it"))
	})
	s.expectTheRules(stage.Node(name))

	s.rules = s.rules.Of(nil, nil)
	s.Expect(s.ensure(s.Client)).To(BeFalse(), "the policy changes")
	s.eventuallyRegisters(stage.Node(name), func(g Gomega, made *corev1.Node) {
		g.Expect(made.Labels).NotTo(HaveKey("cost-center"))
		g.Expect(made.Annotations).NotTo(HaveKey("owner-of"))
	})
}

// madeBy is the owner of the policy.
const madeBy = "heirloom/fleet/prod/uid"

// policyScene is a workload cluster with the sources of its policy.
type policyScene struct {
	*scene
	machines []*clusterv1.Machine
	rules    inherit.Policy
}

func newPolicyScene(t *testing.T) *policyScene {
	t.Helper()
	lent := lend(t, controlplane.ForWorkload(controlplane.Options{}))
	needsPolicies(t, lent.ControlPlane)
	s := sceneOn(t, lent, stage.Options{WithoutWebhooks: true, WithoutProgram: true})
	t.Cleanup(func() { s.Expect(refusedKubeletRequests(t, s.audit)).To(BeEmpty(), "no create may ever fail") })
	additional := []*regexp.Regexp{regexp.MustCompile("team|zone|^note")}
	return &policyScene{scene: s, rules: inherit.Policy{AdditionalLabels: additional, AdditionalAnnotations: additional}}
}

// declaringAll returns a Machine with every kind of content, as it is after inheritance and before it has a Node.
func declaringAll(name string) *clusterv1.Machine {
	d := declared()
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, Labels: d.Labels, Annotations: d.Annotations}}
	m.Spec.Taints, m.Spec.ProviderID = d.Taints, stage.ProviderID(name)
	m.Labels["topology.kubernetes.io/zone"] = "z"
	m.Annotations["node.cluster.x-k8s.io/odd"] = "a=b,c\n100%25 %0A\n\n'\"\\ ß"
	return m
}

// racked returns a Machine of a large fleet.
func racked(number int) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: fmt.Sprintf("m-%04d", number)}}
	m.Annotations = map[string]string{"node.cluster.x-k8s.io/rack": fmt.Sprint(number)}
	m.Spec.ProviderID = "cloud:///" + strings.Repeat("zone/", 5) + m.Name
	m.Status.Addresses = clusterv1.MachineAddresses{
		{Type: clusterv1.MachineInternalIP, Address: fmt.Sprintf("10.0.%d.%d", number>>8, number&255)}, {Type: clusterv1.MachineHostName, Address: m.Name},
	}
	return m
}

// betaClient returns a client of an administrator that knows policies only in v1beta1.
func (s *policyScene) betaClient() client.Client {
	s.t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(admissionregistrationv1beta1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"), meta.RESTScopeRoot)
	mapper.Add(admissionregistrationv1beta1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicyBinding"), meta.RESTScopeRoot)
	beta, err := client.New(s.AdminConfig(), client.Options{Mapper: mapper})
	s.Expect(err).NotTo(HaveOccurred())
	return beta
}

// reads is a client that cannot apply.
type reads struct{ client.Client }

// Apply implements client.Client.
func (reads) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return errors.New("this client only reads")
}

// ensure writes the policy with its parameters, and reports whether it created the policy.
func (s *policyScene) ensure(c client.Client) (registered bool, err error) {
	var machines []inherit.Machine
	for _, m := range s.machines {
		machines = append(machines, inherit.Machine{Actual: m, Effective: m})
	}
	return policy.Ensure(s.ctx, c, madeBy, machines, s.rules)
}

// expectTheRules waits until the Node would have the entries of the rules if its kubelet created it.
func (s *policyScene) expectTheRules(node *corev1.Node) {
	s.t.Helper()
	bare := node.DeepCopy() // without the policy, which applies only to kubelets
	s.Expect(s.Client.Create(s.ctx, bare, client.DryRunAll)).To(Succeed())
	m := inherit.Match(bare, s.machines)
	s.Expect(m).NotTo(BeNil())
	plan := s.rules.PlanNode(inherit.ReadNode(bare, time.Now()), inherit.SourceOfMachine(m), inherit.Turn{Registering: true})
	s.Expect(plan.LeftOut.Problems()).NotTo(HaveOccurred())
	s.eventuallyRegisters(node, func(g Gomega, made *corev1.Node) { g.Expect(inherit.OfNode(made)).To(Equal(plan.Result)) })
}

// eventuallyRegisters waits until a kubelet's create (dry run) returns a Node that passes the check. No create may be refused meanwhile.
func (s *policyScene) eventuallyRegisters(node *corev1.Node, check func(Gomega, *corev1.Node)) {
	s.t.Helper()
	kubelet := s.kubelet(node.Name)
	s.Eventually(func(g Gomega) {
		made := node.DeepCopy()
		s.Expect(kubelet.Create(s.ctx, made, client.DryRunAll)).To(Succeed())
		check(g, made)
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}

// stream registers the Node with this name again and again. missed counts the Nodes that did not inherit; stop ends the stream and
// returns the number of all Nodes.
func (s *policyScene) stream(name string) (missed *atomic.Int64, stop func() int64) {
	// The requests do not use ctx: the audit log would have a cancelled request as a failed request.
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

// versions returns the resource versions of the policy, its binding and its parameters.
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

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}

// refusedKubeletRequests returns the writes of Nodes by kubelets that the API server answered with an error other than a conflict.
func refusedKubeletRequests(t *testing.T, audit tail) (refused []string) {
	t.Helper()
	events, err := audit.events()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	writes := slices.DeleteFunc(events, func(event auditv1.Event) bool {
		return !strings.HasPrefix(event.User.Username, "system:node:") || event.ObjectRef == nil || event.ObjectRef.Resource != "nodes" ||
			slices.Contains([]string{"get", "list", "watch"}, event.Verb) || event.ResponseStatus == nil
	})
	NewWithT(t).Expect(writes).NotTo(BeEmpty())
	for _, event := range writes {
		if code := event.ResponseStatus.Code; code >= 300 && code != http.StatusConflict {
			refused = append(refused, event.Verb+" "+event.RequestURI+": "+event.ResponseStatus.Message)
		}
	}
	return refused
}
