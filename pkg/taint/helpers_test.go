// SPDX-License-Identifier: Apache-2.0

package taint_test

import (
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// notation is kubectl's syntax with the propagation after an @; without @ the propagation is Always.
var notation = regexp.MustCompile(`^([^=:@]*)(?:=([^:@]*))?:([^@]*)(?:@(.*))?$`)

// declared reads taints of a Machine: "gpu=true:NoSchedule, dedicated:NoExecute@OnInitialization". It does not use the parser under test.
func declared(t *testing.T, s string) []clusterv1.MachineTaint {
	t.Helper()
	var taints []clusterv1.MachineTaint
	for entry := range strings.SplitSeq(s, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		m := notation.FindStringSubmatch(entry)
		if m == nil {
			t.Fatalf("bad fixture %q", entry)
		}
		propagation := clusterv1.MachineTaintPropagation(m[4])
		if propagation == "" {
			propagation = clusterv1.MachineTaintPropagationAlways
		}
		taints = append(taints, clusterv1.MachineTaint{
			Key: m[1], Value: m[2], Effect: corev1.TaintEffect(m[3]), Propagation: propagation,
		})
	}
	return taints
}

// onNode reads taints of a Node: "gpu=true:NoSchedule, dedicated:NoExecute".
func onNode(t *testing.T, s string) []corev1.Taint {
	t.Helper()
	var taints []corev1.Taint
	for _, d := range declared(t, s) {
		taints = append(taints, corev1.Taint{Key: d.Key, Value: d.Value, Effect: d.Effect})
	}
	return taints
}

// inOrder formats taints in their order, so that an empty list equals nil.
func inOrder(taints []corev1.Taint) string {
	var text strings.Builder
	for _, t := range taints {
		text.WriteString(t.Key + "=" + t.Value + ":" + string(t.Effect) + " ")
	}
	return text.String()
}

// brief formats errors as "<type> <field>".
func brief(errs field.ErrorList) []string {
	var all []string
	for _, err := range errs {
		all = append(all, strings.TrimPrefix(string(err.Type), "FieldValue")+" "+err.Field)
	}
	return all
}
