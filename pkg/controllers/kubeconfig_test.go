// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/heirloom-dev/heirloom/pkg/controllers"
)

// That a kubeconfig is refused is said on its Cluster. Where there is none, there is nobody to tell.
func TestARefusedKubeconfigIsToldOnItsCluster(t *testing.T) {
	Expect := NewWithT(t).Expect
	scheme := runtime.NewScheme()
	clusterv1.AddToScheme(scheme, clusterv1.GroupVersion)
	clusters := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "red"}}).Build()
	recorder := events.NewFakeRecorder(2)
	refused := controllers.KubeconfigRefused(clusters, recorder)
	refused(t.Context(), types.NamespacedName{Namespace: "ns", Name: "gone"}, errors.New("a file"))
	Expect(recorder.Events).NotTo(Receive())
	refused(t.Context(), types.NamespacedName{Namespace: "ns", Name: "red"}, errors.New("a file"))
	Expect(recorder.Events).To(Receive(Equal(
		"Warning KubeconfigRefused The kubeconfig in the Secret red-kubeconfig is refused, so no Node of the workload cluster inherits: a file")))
}
