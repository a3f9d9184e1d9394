// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The chart's two ClusterRoles for users of the plugin suffice for explain: the first for objects of the management cluster, both for a
// Node of a workload cluster, whose kubeconfig is a Secret.
func testKubectlRights(t *testing.T, w *kubectlWorld) {
	g := NewWithT(t)
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reader"}}
	g.Expect(w.Client.Create(w.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "plugin-reader"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "heirloom-plugin"},
	})).To(Succeed())
	reader := w.kubeconfigOf(t, "reader")
	explain := func(object string) (string, int) {
		_, errOut, code := w.run(t, reader, "explain", object, "node.cluster.x-k8s.io/pool")
		return errOut, code
	}
	errOut, code := explain("machine/prod-gpu-1")
	g.Expect(code).To(BeZero(), errOut)
	errOut, code = explain("node/prod-gpu-1")
	g.Expect(code).To(Equal(2))
	g.Expect(errOut).To(ContainSubstring(`cannot get resource "secrets"`))

	g.Expect(w.Client.Create(w.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: "plugin-reader"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "heirloom-plugin-nodes"},
	})).To(Succeed())
	errOut, code = explain("node/prod-gpu-1")
	g.Expect(code).To(BeZero(), errOut)
	g.Expect(errOut).NotTo(ContainSubstring("forbidden"))
}
