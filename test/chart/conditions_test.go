// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"encoding/json"
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
)

// conditions are the match conditions of one webhook, evaluated by the API server's own code.
type conditions struct {
	matchconditions.Matcher
	compiler *cel.CompositedCompiler
	dryRun   bool // of the requests
}

// conditionsOf returns the match conditions of a webhook of the chart with default values.
func conditionsOf(t *testing.T, kind, webhook string) conditions {
	t.Helper()
	Expect := NewWithT(t).Expect
	objects, err := render(t, nil)
	Expect(err).NotTo(HaveOccurred())
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		if object.GetKind() != kind {
			continue
		}
		// Both kinds of configurations have the fields that are read here.
		config := &admissionregistrationv1.MutatingWebhookConfiguration{}
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, config)).To(Succeed())
		for _, w := range config.Webhooks {
			if w.Name != webhook {
				continue
			}
			var all []cel.ExpressionAccessor
			for _, c := range w.MatchConditions {
				all = append(all, (*matchconditions.MatchCondition)(&c))
			}
			declarations := cel.OptionalVariableDeclarations{HasAuthorizer: true}
			evaluator := compiler.CompileCondition(all, declarations, environment.StoredExpressions)
			fail := admissionregistrationv1.Fail
			return conditions{matchconditions.NewMatcher(evaluator, &fail, "webhook", "admit", w.Name), compiler, false}
		}
	}
	t.Fatalf("the chart has no webhook %s", webhook)
	return conditions{}
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
