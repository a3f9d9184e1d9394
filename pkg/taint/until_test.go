// SPDX-License-Identifier: Apache-2.0

package taint_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

func TestParseGate(t *testing.T) {
	net := corev1.Taint{Key: "net", Value: "calico", Effect: "NoSchedule"}
	for _, tc := range []struct {
		text    string
		want    taint.Gate
		problem string
	}{
		{text: "net=calico:NoSchedule until condition NetworkUnavailable=False", want: taint.Gate{Taint: net, Condition: "NetworkUnavailable", Status: "False"}},
		{text: " net=calico:NoSchedule  until condition\texample.com/Net=Unknown ", want: taint.Gate{Taint: net, Condition: "example.com/Net", Status: "Unknown"}},
		{text: "net=calico:NoSchedule until daemonset kube-system/calico-node.v3", want: taint.Gate{Taint: net, DaemonSet: types.NamespacedName{Namespace: "kube-system", Name: "calico-node.v3"}}},
		{text: "net=calico:NoSchedule", problem: "expected <taint> until condition"},
		{text: "net=calico:NoSchedule until condition Net = True", problem: "expected <taint> until condition"},
		{text: "net=calico:NoSchedule unless condition Net=True", problem: "expected <taint> until condition"},
		{text: "net until condition Net=True", problem: "has no effect"},
		{text: "net:NoSchedule until condition Net", problem: "the status must be True, False or Unknown"},
		{text: "net:NoSchedule until condition Net=true", problem: "the status must be True, False or Unknown"},
		{text: "net:NoSchedule until condition =True", problem: "must be non-empty"},
		{text: "net:NoSchedule until daemonset calico-node", problem: "daemonset must be <namespace>/<name>"},
		{text: "net:NoSchedule until daemonset kube.system/calico", problem: "must not contain dots"},
		{text: "net:NoSchedule until daemonset a/b/c", problem: "RFC 1123 subdomain"},
		{text: "net:NoSchedule until deployment a/b", problem: "a condition or a daemonset"},
	} {
		t.Run(tc.text, func(t *testing.T) {
			got, err := taint.ParseGate(tc.text)
			NewWithT(t).Expect(got).To(Equal(tc.want))
			if tc.problem != "" {
				NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			} else {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				NewWithT(t).Expect(got.String()).To(Equal(strings.Join(strings.Fields(tc.text), " ")))
			}
		})
	}
}

// A start-up gate declares an OnInitialization taint. A broken entry is left out and reported; of several gates with the same key and
// effect, the first counts.
func TestGates(t *testing.T) {
	Expect := NewWithT(t).Expect
	annotations := map[string]string{
		taint.AlwaysAnnotation:     "both=always:NoSchedule",
		taint.InitializeAnnotation: "net=plain:NoSchedule",
		taint.UntilAnnotation:      "net:NoSchedule until condition A=True, both:NoSchedule until condition B=True,typo,net:NoSchedule until condition C=True",
	}
	taints, unreadable := taint.FromAnnotations(annotations)
	Expect(taints).To(Equal(declared(t, "both=always:NoSchedule,net:NoSchedule@OnInitialization")))
	Expect(unreadable).To(HaveKeyWithValue(taint.UntilAnnotation, MatchError(ContainSubstring(`"typo"`))))
	gates := taint.Gates(annotations)
	Expect(gates).To(HaveLen(2))
	Expect(gates[taint.ID{Key: "net", Effect: "NoSchedule"}].Condition).To(BeEquivalentTo("A"))

	const at = "annotations[taints.heirloom.dev/until]"
	judge := func(now, old string) []string {
		of := func(value string) map[string]string { return map[string]string{taint.UntilAnnotation: value} }
		return brief(taint.ValidateAnnotations(field.NewPath("annotations"), taint.Worker, of(now), of(old)))
	}
	const good = "net:NoSchedule until condition A=True"
	Expect(judge(good, "")).To(BeEmpty())
	Expect(judge("typo,"+good+",node.kubernetes.io/x:NoSchedule until condition A=True,"+good, "")).
		To(Equal([]string{"Invalid " + at, "Invalid " + at, "Duplicate " + at}))
	Expect(judge("typo, "+good, "typo")).To(BeEmpty())
}
