// SPDX-License-Identifier: Apache-2.0

package taint_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// huge is far more than an object can have, and less than a review of one's own can. If each taint were compared with each
// other, these tests would not end.
const huge = 500_000

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
	Expect(taint.Positions(synced)).To(HaveLen(huge))
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
	Expect(taint.ValidateAnnotations(path, taint.Worker, at(entries), at(before[1:]))).To(HaveLen(1))
}
