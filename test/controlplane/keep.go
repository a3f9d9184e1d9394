// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keepParameters makes an API server that is lent many times watch the parameters of policies permanently: it creates a policy that
// matches no resource. When the last policy with parameters of a kind is deleted, Kubernetes v1.36 stops watching that kind and never
// starts again, so the policies of the next test would have no effect.
func (cp *ControlPlane) keepParameters(ctx context.Context) error {
	if !cp.ServesAdmissionPolicies() {
		return nil // it has no policies, so it watches no parameters
	}
	c, err := client.New(cp.admin, client.Options{})
	if err != nil {
		return fmt.Errorf("making an administrator's client: %w", err)
	}
	const name = "reads-configmaps.test.example.com"
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	policy.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "ConfigMap"}
	policy.Spec.FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
	policy.Spec.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"test.example.com"}, APIVersions: []string{"v1"}, Resources: []string{"nothing"}},
		},
	}}}
	policy.Spec.Mutations = []admissionregistrationv1.Mutation{{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: "[JSONPatch{op: 'test', path: '/kind', value: object.kind}]"},
	}}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	binding.Spec.PolicyName = name
	binding.Spec.ParamRef = &admissionregistrationv1.ParamRef{
		Namespace: metav1.NamespaceDefault, Name: "none", ParameterNotFoundAction: ptr.To(admissionregistrationv1.AllowAction),
	}
	for _, object := range []client.Object{policy, binding} {
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, name, err)
		}
	}
	return cp.remember(ctx)
}
