// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

}

// Only keys are read of what they are looked up for, so nothing is copied.
func TestKeysCopyNothing(t *testing.T) {
	Expect := NewWithT(t).Expect
	c := newFilled(t, t.Context(), "Machine", 1, machineSent)
	chain, labels := &owners.Chain{Reader: c}, map[string]bool{}
	for range 2 {
		list := &clusterv1.MachineList{}
		Expect(chain.Members(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "prod"}, list)).To(HaveLen(1))
		labels[fmt.Sprintf("%p", list.Items[0].Labels)] = true
	}
	Expect(labels).To(HaveLen(1))
}
