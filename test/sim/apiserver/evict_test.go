// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

// An eviction deletes a Pod of the given UID, unless a budget forbids it.
func TestEviction(t *testing.T) {
	Expect, forbids := NewWithT(t).Expect, true
	c := newClient(t, newServer(t, apiserver.Options{Budget: func() bool { return forbids }}), "admin")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	Expect(c.Create(t.Context(), pod)).To(Succeed())
	evict := func(uid string) error {
		options := metav1.NewPreconditionDeleteOptions(uid)
		return c.SubResource("eviction").Create(t.Context(), pod, &policyv1.Eviction{DeleteOptions: options})
	}
	err := evict(string(pod.UID))
	Expect(apierrors.IsTooManyRequests(err)).To(BeTrue())
	Expect(apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause)).To(BeTrue())
	forbids = false
	Expect(apierrors.IsConflict(evict("another"))).To(BeTrue())
	Expect(evict(string(pod.UID))).To(Succeed())
	Expect(apierrors.IsNotFound(evict(string(pod.UID)))).To(BeTrue())
	Expect(apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))).To(BeTrue())
}
