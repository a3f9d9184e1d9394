// SPDX-License-Identifier: Apache-2.0

package taint_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

func TestParseGate(t *testing.T) {
	net := corev1.Taint{Key: "net", Value: "calico", Effect: "NoSchedule"}
	on := func(kind taint.RequirementKind, name string) taint.Requirement {
		return taint.Requirement{Kind: kind, Name: name}
	}
	for _, tc := range []struct {
		text    string
		want    taint.Gate
		problem string
	}{
		{text: "net=calico:NoSchedule until condition NetworkUnavailable=False", want: taint.Gate{Taint: net, Until: []taint.Requirement{on(taint.Condition, "NetworkUnavailable=False")}}},
		{text: " net=calico:NoSchedule  until condition\texample.com/Net=Unknown ", want: taint.Gate{Taint: net, Until: []taint.Requirement{on(taint.Condition, "example.com/Net=Unknown")}}},
		{text: "net=calico:NoSchedule until daemonset kube-system/calico-node.v3", want: taint.Gate{Taint: net, Until: []taint.Requirement{on(taint.DaemonSet, "kube-system/calico-node.v3")}}},
		{text: "net=calico:NoSchedule until allocatable nvidia.com/gpu", want: taint.Gate{Taint: net, Until: []taint.Requirement{on(taint.Allocatable, "nvidia.com/gpu")}}},
		{text: "net=calico:NoSchedule until allocatable hugepages-1Gi within 1h0m5s", want: taint.Gate{Taint: net, Until: []taint.Requirement{on(taint.Allocatable, "hugepages-1Gi")}, Within: time.Hour + 5*time.Second}},
		{text: "net=calico:NoSchedule until csinode ebs.csi.aws.com within 24h", want: taint.Gate{Taint: net, Until: []taint.Requirement{on(taint.CSINode, "ebs.csi.aws.com")}, Within: 24 * time.Hour}},
		{
			text: "net=calico:NoSchedule until daemonset a/b and allocatable nvidia.com/gpu and condition X=True and csinode a within 1h30m",
			want: taint.Gate{Taint: net, Within: 90 * time.Minute, Until: []taint.Requirement{
				on(taint.DaemonSet, "a/b"), on(taint.Allocatable, "nvidia.com/gpu"), on(taint.Condition, "X=True"), on(taint.CSINode, "a"),
			}},
		},
		{text: "net=calico:NoSchedule", problem: "expected <taint> until <requirement>"},
		{text: "net=calico:NoSchedule until", problem: "it ends where a requirement is expected: condition <type>=<status>, daemonset"},
		{text: "net=calico:NoSchedule until condition Net = True", problem: `word 4, "Net": the status must be True, False or Unknown`},
		{text: "net=calico:NoSchedule unless condition Net=True", problem: "expected <taint> until <requirement>"},
		{text: "net until condition Net=True", problem: "lacks an effect"},
		{text: "net:NoSchedule until condition Net=true", problem: "the status must be True, False or Unknown"},
		{text: "net:NoSchedule until condition =True", problem: "must be non-empty"},
		{text: "net:NoSchedule until condition Net=True or condition Other=True", problem: `word 5, "or": expected and, within, or the end`},
		{text: "net:NoSchedule until condition Net=True and", problem: "it ends where a requirement is expected"},
		{text: "net:NoSchedule until condition Net=True and condition Net=False", problem: "word 6: condition Net is there twice"},
		{text: "net:NoSchedule until condition A=True" + strings.Repeat(" and condition A=True", 8), problem: "is there twice"},
		{text: "net:NoSchedule until csinode a and csinode b and csinode c and csinode d and csinode e and csinode f and csinode g and csinode h and csinode i", problem: "word 27: a gate has at most 8 requirements"},
		{text: "net:NoSchedule until daemonset calico-node", problem: `word 4, "calico-node": a daemonset must be <namespace>/<name>`},
		{text: "net:NoSchedule until daemonset kube.system/calico", problem: "must not contain dots"},
		{text: "net:NoSchedule until daemonset a/b/c", problem: "RFC 1123 subdomain"},
		{text: "net:NoSchedule until deployment a/b", problem: `word 3, "deployment": expected a requirement: condition`},
		{text: "net:NoSchedule until allocatable", problem: "must be non-empty"},
		{text: "net:NoSchedule until allocatable nvidia.com/gpu=1", problem: `word 4, "nvidia.com/gpu=1": name part must consist of`},
		{text: "net:NoSchedule until allocatable cpu", problem: "every Node has this resource"},
		{text: "net:NoSchedule until csinode a_b", problem: "RFC 1123 subdomain"},
		{text: "net:NoSchedule until csinode " + strings.Repeat("a", 64), problem: "must be no more than 63"},
		{text: "net:NoSchedule until csinode a within", problem: `word 6, "": expected a positive duration`},
		{text: "net:NoSchedule until csinode a within 1d", problem: `word 6, "1d": expected a positive duration`},
		{text: "net:NoSchedule until csinode a within 10000000h", problem: `word 6, "10000000h": the duration is too long`},
		{text: "net:NoSchedule until csinode a within -1m", problem: "expected a positive duration"},
		{text: "net:NoSchedule until csinode a within 1m and csinode b", problem: `word 7, "and": expected the end`},
	} {
		t.Run(tc.text, func(t *testing.T) {
			got, err := taint.ParseGate(tc.text)
			NewWithT(t).Expect(got).To(Equal(tc.want))
			if tc.problem != "" {
				NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			} else {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				NewWithT(t).Expect(got.String()).To(Equal(strings.ReplaceAll(strings.Join(strings.Fields(tc.text), " "), "1h0m5s", "1h5s")))
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
	Expect(gates[taint.ID{Key: "net", Effect: "NoSchedule"}].Until).To(Equal([]taint.Requirement{{Kind: taint.Condition, Name: "A=True"}}))

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
