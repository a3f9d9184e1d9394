// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/check"
)

// conditions are the match conditions of one webhook, evaluated by the API server's own code.
type conditions struct {
	matchconditions.Matcher
	compiler *cel.CompositedCompiler
	dryRun   bool // of the requests
}

// conditionsOf returns the match conditions of a webhook.
func conditionsOf(t *testing.T, webhook string) conditions {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	all := webhooks(t)
	i := slices.IndexFunc(all, func(w admissionregistrationv1.MutatingWebhook) bool { return w.Name == webhook })
	NewWithT(t).Expect(i).NotTo(Equal(-1), "the chart has no webhook %s", webhook)
	var expressions []cel.ExpressionAccessor
	for _, c := range all[i].MatchConditions {
		expressions = append(expressions, (*matchconditions.MatchCondition)(&c))
	}
	evaluator := compiler.CompileCondition(expressions, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
	fail := admissionregistrationv1.Fail
	return conditions{matchconditions.NewMatcher(evaluator, &fail, "webhook", "admit", webhook), compiler, false}
}

// webhooks returns the webhooks of the chart, as it is for a management cluster whose Nodes inherit. Validating webhooks have the same
// fields, as far as these tests read them.
func webhooks(t *testing.T) (all []admissionregistrationv1.MutatingWebhook) {
	t.Helper()
	objects := renderWithHook(t, values{"managementCluster": "fleet/self"})
	for _, object := range ofKinds(objects, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration") {
		config := &admissionregistrationv1.MutatingWebhookConfiguration{}
		NewWithT(t).Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, config)).To(Succeed())
		all = append(all, config.Webhooks...)
	}
	return all
}

// "kubectl heirloom check" looks for the webhooks of the chart, and each has the match condition that it expects.
func TestThePluginHasTheChartsWebhooks(t *testing.T) {
	var names []string
	for _, webhook := range webhooks(t) {
		names = append(names, webhook.Name)
		NewWithT(t).Expect(webhook.MatchConditions).To(ContainElement(HaveField("Name", "changed")), webhook.Name)
	}
	NewWithT(t).Expect(names).To(ConsistOf(check.Webhooks))
}

// match reports whether the API server calls the webhook for a request. Without an old object, the request is a create. An error would
// trigger the failure policy, so it fails the test.
func (c conditions) match(t *testing.T, old, object *unstructured.Unstructured) bool {
	t.Helper()
	gvk := object.GroupVersionKind()
	resource := gvk.GroupVersion().WithResource(plurals()[gvk.Kind])
	operation, options := admission.Create, runtime.Object(&metav1.CreateOptions{})
	var before runtime.Object
	if old != nil {
		operation, options, before = admission.Update, &metav1.UpdateOptions{}, old
	}
	record := admission.NewAttributesRecord(object, before, gvk, object.GetNamespace(), object.GetName(), resource, "", operation, options, c.dryRun,
		&user.DefaultInfo{Name: "somebody"})
	result := c.Match(c.compiler.CreateContext(context.Background()), &admission.VersionedAttributes{
		Attributes: record, VersionedKind: gvk, VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(before),
	}, nil, nil)
	if result.Error != nil {
		t.Fatalf("%v for\n%v\nbefore\n%v", result.Error, object, old)
	}
	return result.Matches
}

func plurals() map[string]string {
	return map[string]string{
		"Machine": "machines", "MachineSet": "machinesets", "MachineDeployment": "machinedeployments", "Cluster": "clusters",
		"AcmeControlPlane": "acmecontrolplanes", "AcmeControlPlaneTemplate": "acmecontrolplanetemplates", "Node": "nodes",
	}
}

// read decodes an object from JSON.
func read(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return object
}
