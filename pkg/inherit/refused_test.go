// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Whatever a Machine declares, its Node can register, and with the taints that keep workload away.
func TestWhatAnAPIServerWouldRefuseStaysAway(t *testing.T) {
	const label, annotation = "node.cluster.x-k8s.io/a", "node.cluster.x-k8s.io/b"
	many, long := map[string]string{}, strings.Repeat("x", apivalidation.TotalAnnotationSizeLimitB-1000)
	for i := range 8_000 {
		many[fmt.Sprintf("%s-%d.%s", label, i, strings.Repeat("x", 30))] = ""
	}
	full := map[string]string{"kept": strings.Repeat("x", apivalidation.TotalAnnotationSizeLimitB-len("kept"))}
	for _, tc := range []struct {
		name                string
		labels, annotations map[string]string
		node                map[string]string
		says                string
		labelled, annotated bool
		tainted             bool
	}{
		{name: "what fits", labels: map[string]string{label: "1"}, annotations: map[string]string{annotation: "1"}, labelled: true, annotated: true, tainted: true},
		{name: "a long annotation that fits", annotations: map[string]string{annotation: long}, annotated: true, tainted: true},
		{name: "a long annotation that does not fit beside the Node's own", annotations: map[string]string{annotation: long}, node: map[string]string{"own": long[:2000]}, says: "a Node has no room for all of them", tainted: true},
		{name: "labels for which there is room, but not for their record", labels: many, says: "a Node has no room for all of them", tainted: true},
		{name: "a label that no API server takes", labels: map[string]string{label: "not valid"}, annotations: map[string]string{annotation: "1"}, says: "no Node can carry it", annotated: true, tainted: true},
		{name: "an annotation that no API server takes", labels: map[string]string{label: "1"}, annotations: map[string]string{"node.cluster.x-k8s.io/not valid": "1"}, says: "no Node can carry it", labelled: true, tainted: true},
		{name: "a Node that has no room even for the record of its taints", labels: map[string]string{label: "1"}, node: full, says: "a Node has no room for all of them", tainted: true},
	} {
		for writer, name := range map[inherit.Writer]string{inherit.Kubelet: "kubelet", inherit.Privileged: "others"} {
			t.Run(tc.name+"/"+name, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				m := content{taints: "gpu=1:NoSchedule"}.machine()
				m.Labels, m.Annotations = tc.labels, tc.annotations
				current := inherit.NodeState{Annotations: tc.node, Labels: map[string]string{"mine": "1"}}
				got, err := withProblems(inherit.Policy{}.Node(inherit.SourceOfMachine(m), current, writer))
				if tc.says == "" {
					Expect(err).NotTo(HaveOccurred())
				} else {
					Expect(err).To(MatchError(ContainSubstring(tc.says)))
				}
				Expect(apivalidation.ValidateAnnotations(got.Annotations, nil)).To(BeEmpty())
				Expect(got.Labels).To(HaveKeyWithValue("mine", "1"))
				Expect(len(unrecorded(got).Labels) > 1).To(Equal(tc.labelled))
				_, annotated := got.Annotations[annotation]
				Expect(annotated).To(Equal(tc.annotated))
				Expect(len(got.Taints) > 0).To(Equal(tc.tainted))
				for key, value := range tc.node {
					Expect(got.Annotations).To(HaveKeyWithValue(key, value))
				}
				again, _ := inherit.Policy{}.Node(inherit.SourceOfMachine(m), got, inherit.Privileged)
				once, _ := inherit.Policy{}.Node(inherit.SourceOfMachine(m), again, inherit.Privileged)
				Expect(once.Equal(again)).To(BeTrue(), "there is an end to it")
			})
		}
	}
}

// An API server reads some annotations of Nodes. No Node gets them, whatever an operator selects, and such a Node of before loses them.
func TestAnnotationsThatAnAPIServerReads(t *testing.T) {
	Expect := NewWithT(t).Expect
	policy := inherit.Policy{AdditionalAnnotations: []*regexp.Regexp{regexp.MustCompile("")}}
	m := content{annotations: "a=1"}.machine()
	m.Annotations["scheduler.alpha.kubernetes.io/taints"], m.Annotations["scheduler.alpha.kubernetes.io/preferAvoidPods"] = "x", "x"
	for _, writer := range []inherit.Writer{inherit.Kubelet, inherit.Privileged} {
		got, dropped := policy.Node(inherit.SourceOfMachine(m), inherit.NodeState{}, writer)
		Expect(got.Annotations).To(HaveKey("a"))
		Expect(got.Annotations).NotTo(HaveKey(HavePrefix("scheduler.alpha")))
		Expect(dropped).To(ContainElements(
			HaveField("Entry.Name", "scheduler.alpha.kubernetes.io/taints"), HaveField("Why", inherit.DropNever)))
	}
}
