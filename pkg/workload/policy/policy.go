// SPDX-License-Identifier: Apache-2.0

package policy

import (
	_ "embed"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const (
	// Name is the name of the policy, of its binding and of the ConfigMap with its parameters. If there are several
	// ConfigMaps, their names begin with it.
	Name = "nodes.heirloom.dev"

	// Namespace is where the parameters are in a workload cluster. It is not the one of Heirloom's chart, because it is removed
	// with the parameters, even from a cluster that has become a management cluster since.
	Namespace = "heirloom-nodes"

	bindingKind = "MutatingAdmissionPolicyBinding"
)

//go:embed policy.yaml
var manifest string

// labels are on every object that this package makes, and select it. Others may have all of them, too: see list.
func labels() map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":       "heirloom",
		"app.kubernetes.io/component":  "node-admission",
		"app.kubernetes.io/managed-by": "heirloom",
	}
}

// AdmissionPolicy returns the policy. It is the same for every workload cluster.
func AdmissionPolicy() *admissionregistrationv1.MutatingAdmissionPolicy {
	guard := clusterv1.NodeUninitializedTaint
	text := strings.NewReplacer(
		"FORMAT", format,
		"PART_KEY", partKey,
		"ENDING", ending,
		"GUARD_LINE", guardLine,
		"GUARD_KEY", guard.Key,
		"GUARD_EFFECT", string(guard.Effect),
		"GUARD_ANNOTATION", inherit.UninitializedAnnotation,
		"TAINTS_ANNOTATION", clusterv1.TaintsFromMachineAnnotation,
		"TRACKING", "'"+strings.Join(inherit.TrackingAnnotations(), "', '")+"'",
	).Replace(manifest)
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: Name, Labels: labels()}}
	utilruntime.Must(yaml.UnmarshalStrict([]byte(text), policy)) // the text is a part of the program
	return policy
}

// Binding returns the binding of the policy to parameters in that many parts. The policy is evaluated for each. Without
// parameters, nothing happens.
func Binding(parts int) *admissionregistrationv1.MutatingAdmissionPolicyBinding {
	return &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: bindingKind},
		ObjectMeta: metav1.ObjectMeta{Name: Name, Labels: labels()},
		Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: Name,
			ParamRef: &admissionregistrationv1.ParamRef{
				Selector:  &metav1.LabelSelector{MatchLabels: partLabels(parts)},
				Namespace: Namespace, ParameterNotFoundAction: ptr.To(admissionregistrationv1.AllowAction),
			},
		},
	}
}
