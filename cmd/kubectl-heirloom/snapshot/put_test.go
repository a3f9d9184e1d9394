// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// A list has what is put, also if it was read before: in place of what is stored, or after it in the order of names.
func TestListsHaveWhatIsPut(t *testing.T) {
	Expect := NewWithT(t).Expect
	scheme := runtime.NewScheme()
	capi.AddToScheme(scheme, clusterv1.GroupVersion)
	stored := &capi.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m"}}
	s := snapshot.New(fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored).Build(), nil)
	listed := func() (all []string) {
		list := &capi.MachineList{}
		Expect(s.List(t.Context(), list, client.InNamespace("default"))).To(Succeed())
		for _, m := range list.Items {
			all = append(all, m.Name+m.Labels["a"])
		}
		return all
	}
	Expect(listed()).To(Equal([]string{"m"}))
	for _, name := range []string{"z", "m", "b"} {
		m := &unstructured.Unstructured{}
		m.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
		m.SetNamespace("default")
		m.SetName(name)
		m.SetLabels(map[string]string{"a": "!"})
		s.Put(m)
	}
	Expect(listed()).To(Equal([]string{"m!", "b!", "z!"}))
}
