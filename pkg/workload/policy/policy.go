// SPDX-License-Identifier: Apache-2.0

package policy

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	// Name is that of the policy, of its binding and of the ConfigMap with its parameters. Where these are in several, it begins
	// their names.
	Name = "nodes.heirloom.dev"

	// DefaultNamespace is where the parameters are in a workload cluster. It is not that of Heirloom's chart: it is removed
	// with the parameters, also from a cluster that has become a management cluster since.
	DefaultNamespace = "heirloom-nodes"
)

// labels are those of every object that this package makes, and selects by. Nothing else carries all of them.
func labels() map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":       "heirloom",
		"app.kubernetes.io/component":  "node-admission",
		"app.kubernetes.io/managed-by": "heirloom",
	}
}

// AdmissionPolicy returns the policy. It is the same for every workload cluster. Every field that the API server would
// default is set, so that what it stores can be compared.
func AdmissionPolicy() *admissionregistrationv1.MutatingAdmissionPolicy {
	return &admissionregistrationv1.MutatingAdmissionPolicy{
		TypeMeta:   typeMeta("MutatingAdmissionPolicy"),
		ObjectMeta: metav1.ObjectMeta{Name: Name, Labels: labels()},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			ParamKind:          &admissionregistrationv1.ParamKind{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "ConfigMap"},
			MatchConstraints:   registrations(),
			MatchConditions:    matchConditions(),
			Variables:          variables(),
			FailurePolicy:      ptr.To(admissionregistrationv1.Ignore),
			ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: patch()},
			}},
		},
	}
}

// registrations are the creates of Nodes. The opt-out label means nothing on a Node, where its kubelet may write it.
func registrations() *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		MatchPolicy:       ptr.To(admissionregistrationv1.Equivalent),
		NamespaceSelector: &metav1.LabelSelector{},
		ObjectSelector:    &metav1.LabelSelector{},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{corev1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"nodes"},
					Scope: ptr.To(admissionregistrationv1.ClusterScope),
				},
			},
		}},
	}
}

// Binding returns the binding of the policy to the parameters in this namespace that are in so many parts. The policy is
// evaluated for each. Where there are none, nothing happens.
func Binding(namespace string, parts int) *admissionregistrationv1.MutatingAdmissionPolicyBinding {
	return &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   typeMeta("MutatingAdmissionPolicyBinding"),
		ObjectMeta: metav1.ObjectMeta{Name: Name, Labels: labels()},
		Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: Name,
			ParamRef: &admissionregistrationv1.ParamRef{
				Selector:  &metav1.LabelSelector{MatchLabels: partLabels(parts)},
				Namespace: namespace, ParameterNotFoundAction: ptr.To(admissionregistrationv1.AllowAction),
			},
		},
	}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}
