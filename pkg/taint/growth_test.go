// SPDX-License-Identifier: Apache-2.0

package taint_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// huge is far more taints than an object can have, and less than a tenant's request can have. If each taint were compared with each other
// taint, these tests would not end.
const huge = 300_000

func hugeList(of func(i int) clusterv1.MachineTaint) []clusterv1.MachineTaint {
	taints := make([]clusterv1.MachineTaint, huge)
	for i := range taints {
		taints[i] = of(i)
	}
	return taints
}

func numbered(i int) clusterv1.MachineTaint {
	return clusterv1.MachineTaint{
		Key: fmt.Sprintf("k%d", i), Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationAlways,
	}
}

func TestSyncOfHugeLists(t *testing.T) {
	Expect := NewWithT(t).Expect
	declared := hugeList(numbered)
	var current, recorded []corev1.Taint
	for i := range huge {
		current = append(current, taint.ForNode(numbered(huge/2+i)))
		recorded = append(recorded, taint.ForNode(numbered(huge+i)))
	}
	synced := taint.Sync(current, declared, recorded, true)
	Expect(synced).To(HaveLen(huge))
	Expect(synced[0]).To(Equal(current[0]))
	Expect(synced[huge-1]).To(Equal(taint.ForNode(numbered(huge/2 - 1))))
	Expect(taint.ByID(synced)).To(HaveLen(huge))
}

func TestValidationOfHugeLists(t *testing.T) {
	Expect := NewWithT(t).Expect
	path := field.NewPath("spec")
	Expect(taint.Validate(path, taint.Worker, hugeList(numbered), hugeList(func(i int) clusterv1.MachineTaint {
		return numbered(huge - i)
	}))).To(BeEmpty())

	entries, before := make([]string, huge), make([]string, huge)
	for i := range huge {
		entries[i], before[huge-1-i] = fmt.Sprint("no-taint-", i), fmt.Sprint("no-taint-", i)
	}
	at := func(list []string) map[string]string {
		return map[string]string{taint.AlwaysAnnotation: strings.Join(list, ",")}
	}
	Expect(brief(taint.ValidateAnnotations(path, taint.Worker, at(entries), at(before)))).To(HaveExactElements(HavePrefix("TooLong")))
}

// Validation reports only the first problems of a list: a report is much longer than the invalid entry.
func TestProblemsOfHugeListsAreFew(t *testing.T) {
	Expect := NewWithT(t).Expect
	wrong := make([]clusterv1.MachineTaint, 10_000)
	path := field.NewPath("spec")
	Expect(len(taint.Validate(path, taint.Worker, wrong, nil))).To(BeNumerically("<", taint.MostProblems+10))
	carrier := &taint.Carrier{}
	carrier.Spec.Taints = wrong
	Expect(taint.ValidateCarrier(carrier, nil, false)).To(HaveLen(taint.MostProblems))

	_, err := taint.ParseList(strings.Repeat("x,", 1000))
	Expect(err).To(MatchError(HaveSuffix("\nand 900 more entries, which were not read")))
	_, err = taint.ParseList(strings.Repeat("x,", huge))
	Expect(err).To(MatchError("600000 bytes of taints are more than 262144"))
}

// Each decision about a Node parses the declarations of its Machine, so longer declarations than any honest declaration declare nothing.
func TestDeclarationsOfTaintsAreLimited(t *testing.T) {
	for annotation, declaration := range map[string]string{
		taint.AlwaysAnnotation: "a:NoSchedule", taint.InitializeAnnotation: "a:NoSchedule", taint.UntilAnnotation: "a:NoSchedule until condition A=True",
	} {
		for size, declared := range map[int]int{16 << 10: 1, 16<<10 + 1: 0} {
			Expect := NewWithT(t).Expect
			annotations := map[string]string{annotation: declaration + strings.Repeat(",", size-len(declaration))}
			taints, unreadable := taint.FromAnnotations(annotations)
			Expect(taints).To(HaveLen(declared), annotation)
			Expect(unreadable).To(HaveLen(1-declared), annotation)
			if annotation == taint.UntilAnnotation {
				Expect(taint.Gates(annotations)).To(HaveLen(declared))
			}
			path := field.NewPath("metadata")
			Expect(taint.ValidateAnnotations(path, taint.Worker, annotations, nil)).To(HaveLen(1-declared), annotation)
			Expect(taint.ValidateAnnotations(path, taint.Worker, annotations, annotations)).To(BeEmpty(), "a stored object can still be updated")
		}
	}
}

// Validation reads only the templates of Cluster API: in endlessly nested templates, each problem would have a path as long as the request.
func TestTemplatesWithinTemplates(t *testing.T) {
	Expect := NewWithT(t).Expect
	const depth = 4_000
	text := strings.Repeat(`{"taints":[{}],"spec":{"machineTemplate":`, depth) + "{}" + strings.Repeat("}}", depth)
	carrier := &taint.Carrier{}
	Expect(json.Unmarshal([]byte(`{"spec":{"template":`+text+`,"topology":{"controlPlane":`+text+`}}}`), carrier)).To(Succeed())
	for _, problem := range taint.ValidateCarrier(carrier, nil, false) {
		Expect(len(problem.Field)).To(BeNumerically("<", 200))
	}
}
