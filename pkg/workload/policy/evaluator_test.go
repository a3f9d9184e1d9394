// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
)

// evaluator evaluates the MutatingAdmissionPolicy as an API server does, with the API server's own code.
type evaluator struct {
	t        *testing.T
	compiler *cel.CompositedCompiler
	matcher  matchconditions.Matcher
	patcher  patch.Patcher
}

// oldest is the version whose CEL libraries an API server of Kubernetes 1.34 allows in new expressions: the version before its own.
var oldest = version.MajorMinor(1, 33)

// thePolicy returns the MutatingAdmissionPolicy in v1, which has the same fields as v1beta1.
func thePolicy(t *testing.T, rules inherit.Policy) *admissionregistrationv1.MutatingAdmissionPolicy {
	t.Helper()
	return typed[admissionregistrationv1.MutatingAdmissionPolicy](t, policy.AdmissionPolicy(admissionregistrationv1.SchemeGroupVersion, rules))
}

// typed converts an object to its Go type, and expects that the type knows all fields.
func typed[T any](t *testing.T, object *unstructured.Unstructured) *T {
	t.Helper()
	into := new(T)
	NewWithT(t).Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true)).To(Succeed())
	return into
}

func newEvaluator(t *testing.T) *evaluator {
	t.Helper()
	return evaluatorBy(t, inherit.Policy{})
}

// evaluatorBy returns an evaluator of the MutatingAdmissionPolicy for these rules.
func evaluatorBy(t *testing.T, rules inherit.Policy) *evaluator {
	t.Helper()
	Expect := NewWithT(t).Expect
	p := thePolicy(t, rules)
	declarations := cel.OptionalVariableDeclarations{HasParams: true, HasAuthorizer: true}
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(oldest))
	Expect(err).NotTo(HaveOccurred())
	for _, v := range p.Spec.Variables {
		result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, declarations, environment.NewExpressions)
		if result.Error != nil {
			t.Fatalf("variable %s: %v", v.Name, result.Error)
		}
	}
	var conditions []cel.ExpressionAccessor
	for _, c := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&c))
	}
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(conditions, declarations, environment.NewExpressions),
		p.Spec.FailurePolicy, "policy", "mutate", p.Name)
	declarations.HasPatchTypes = true
	mutation := compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: p.Spec.Mutations[0].JSONPatch.Expression},
		declarations, environment.NewExpressions)
	Expect(mutation.CompilationErrors()).To(BeEmpty())
	return &evaluator{t: t, compiler: compiler, matcher: matcher, patcher: patch.NewJSONPatcher(mutation)}
}

// matches reports whether the MutatingAdmissionPolicy applies when this user creates the Node. An API server ignores the error.
func (e *evaluator) matches(node *corev1.Node, parameters *corev1.ConfigMap, u user.Info) (bool, error) {
	result := e.matcher.Match(e.context(), attributes(node, u), parameters, nil)
	return result.Matches, result.Error
}

// register returns the Node after its kubelet's create.
func (e *evaluator) register(node *corev1.Node, parameters *corev1.ConfigMap) *corev1.Node {
	e.t.Helper()
	kubelet := &user.DefaultInfo{Name: "system:node:" + node.Name, Groups: []string{user.NodesGroup, user.AllAuthenticated}}
	Expect := NewWithT(e.t).Expect
	Expect(e.matches(node, parameters, kubelet)).To(BeTrue())
	registered, err := e.patch(node, parameters, celconfig.RuntimeCELCostBudget)
	Expect(err).NotTo(HaveOccurred(), "Node %+v", node)
	return registered
}

func (e *evaluator) patch(node *corev1.Node, parameters *corev1.ConfigMap, budget int64) (*corev1.Node, error) {
	result, err := e.patcher.Patch(e.context(), patch.Request{
		MatchedResource:     corev1.SchemeGroupVersion.WithResource("nodes"),
		VersionedAttributes: attributes(node, &user.DefaultInfo{}),
		ObjectInterfaces:    admission.NewObjectInterfacesFromScheme(clientgoscheme.Scheme),
		OptionalVariables:   cel.OptionalVariableBindings{VersionedParams: parameters},
	}, budget)
	if err != nil {
		return nil, err
	}
	return result.(*corev1.Node), nil
}

func (e *evaluator) context() context.Context {
	return e.compiler.CreateContext(e.t.Context())
}

func attributes(node *corev1.Node, u user.Info) *admission.VersionedAttributes {
	node = node.DeepCopy()
	kind := corev1.SchemeGroupVersion.WithKind("Node")
	node.SetGroupVersionKind(kind)
	record := admission.NewAttributesRecord(node, nil, kind, "", node.Name, corev1.SchemeGroupVersion.WithResource("nodes"),
		"", admission.Create, &metav1.CreateOptions{}, false, u)
	return &admission.VersionedAttributes{Attributes: record, VersionedKind: kind, VersionedObject: admission.NewLazyObject(node)}
}

func TestThePolicyIsForKubeletsAndTheirOwnNodes(t *testing.T) {
	e := newEvaluator(t)
	parameters := parametersOf(t)
	other := parametersOf(t)
	other.Data["format"] = "1"
	empty := &corev1.ConfigMap{}
	for _, tc := range []struct {
		name       string
		parameters *corev1.ConfigMap
		user       user.DefaultInfo
		want       bool
	}{
		{name: "a kubelet creates its Node", parameters: parameters, user: user.DefaultInfo{Name: "system:node:a", Groups: []string{"system:authenticated", "system:nodes"}}, want: true},
		{name: "a kubelet creates another's Node", parameters: parameters, user: user.DefaultInfo{Name: "system:node:b", Groups: []string{"system:nodes"}}},
		{name: "somebody else is in the group of kubelets", parameters: parameters, user: user.DefaultInfo{Name: "a", Groups: []string{"system:nodes"}}},
		{name: "somebody has a kubelet's name only", parameters: parameters, user: user.DefaultInfo{Name: "system:node:a", Groups: []string{"system:masters"}}},
		{name: "somebody is in no group at all", parameters: parameters, user: user.DefaultInfo{Name: "system:node:a"}},
		{name: "the parameters are of another format", parameters: other, user: user.DefaultInfo{Name: "system:node:a", Groups: []string{"system:nodes"}}},
		{name: "the parameters are empty", parameters: empty, user: user.DefaultInfo{Name: "system:node:a", Groups: []string{"system:nodes"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			matches, err := e.matches(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, tc.parameters, &tc.user)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(matches).To(Equal(tc.want))
		})
	}
}

func TestThePolicyFailsOpenAndIsForCreatesOnly(t *testing.T) {
	Expect := NewWithT(t).Expect
	p := thePolicy(t, inherit.Policy{})
	binding := typed[admissionregistrationv1.MutatingAdmissionPolicyBinding](t, policy.Binding(admissionregistrationv1.SchemeGroupVersion))
	Expect(*p.Spec.FailurePolicy).To(Equal(admissionregistrationv1.Ignore))
	Expect(p.Spec.ReinvocationPolicy).To(Equal(admissionregistrationv1.IfNeededReinvocationPolicy))
	Expect(p.Spec.MatchConstraints.ResourceRules).To(HaveLen(1))
	rule := p.Spec.MatchConstraints.ResourceRules[0]
	Expect(rule.Operations).To(Equal([]admissionregistrationv1.OperationType{admissionregistrationv1.Create}))
	Expect(rule.Resources).To(Equal([]string{"nodes"}), "never nodes/status")
	selector, err := metav1.LabelSelectorAsSelector(p.Spec.MatchConstraints.ObjectSelector)
	Expect(err).NotTo(HaveOccurred())
	Expect(selector.Matches(k8slabels.Set{"kubernetes.io/os": "linux"})).To(BeTrue())
	Expect(selector.Matches(k8slabels.Set{inherit.IgnoreLabel: ""})).To(BeTrue(), "no kubelet can opt its Node out")
	Expect(*binding.Spec.ParamRef.ParameterNotFoundAction).To(Equal(admissionregistrationv1.AllowAction))
	Expect(binding.Spec.ParamRef.Namespace).To(Equal(policy.Namespace))
	Expect(binding.Spec.ParamRef.Name).To(Equal(policy.Name))
	names := make([]string, 0, len(p.Spec.Variables))
	for _, v := range p.Spec.Variables {
		names = append(names, v.Name)
		Expect(v.Expression).NotTo(MatchRegexp(`[A-Z]{4,}`), "every constant is filled in")
	}
	slices.Sort(names)
	Expect(slices.Compact(names)).To(HaveLen(len(p.Spec.Variables)))
}
