// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/kept"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

func TestWhatCachesKeep(t *testing.T) {
	Expect := NewWithT(t).Expect
	fields := []metav1.ManagedFieldsEntry{
		{Manager: "kubectl", Operation: "Apply"},
		{Manager: "heirloom", Operation: "Apply", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:a":{}}}}`)},
		{Manager: "heirloom", Operation: "Update"},
	}

	keep := kept.New(inherit.Policy{AdditionalLabels: []*regexp.Regexp{regexp.MustCompile("^a$")}})
	m, err := keep.Object(&capi.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", ManagedFields: fields}})
	Expect(err).NotTo(HaveOccurred())
	Expect(m).To(Equal(&capi.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", ManagedFields: []metav1.ManagedFieldsEntry{fields[1], {}}}}),
		"our own entry says what we may remove, another stands for the rest")

	n, err := keep.Node(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "1", corev1.LabelArchStable: "amd64"}, Annotations: map[string]string{"b": "2"}, ManagedFields: fields},
		Spec:       corev1.NodeSpec{ProviderID: "aws://1", PodCIDR: "10.0.0.0/24", Taints: []corev1.Taint{{Key: "gpu"}}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: "Hostname", Address: "h"}},
			Images:    []corev1.ContainerImage{{SizeBytes: 1}}, Conditions: []corev1.NodeCondition{{Type: "Ready"}},
		},
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(n).To(Equal(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "1"}, Annotations: map[string]string{"b": "2"}},
		Spec:       corev1.NodeSpec{ProviderID: "aws://1", Taints: []corev1.Taint{{Key: "gpu"}}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: "Hostname", Address: "h"}}},
	}))

	cp, err := keep.Object(&unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "cp"}, "status": map[string]any{"ready": true},
		"spec": map[string]any{"secret": "x", "machineTemplate": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "1"}}}},
	}})
	Expect(err).NotTo(HaveOccurred())
	Expect(cp).To(HaveField("Object", HaveKeyWithValue("spec", map[string]any{
		"machineTemplate": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "1"}}},
	})), "of a provider's control plane only what it declares for Machines")
	Expect(cp).To(HaveField("Object", Not(HaveKey("status"))))

	bare, err := keep.Object(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}, "spec": "text"}})
	Expect(err).NotTo(HaveOccurred())
	Expect(bare).To(HaveField("Object", Not(HaveKey("spec"))), "a control plane that breaks the contract does no harm")

	for _, trim := range []func(any) (any, error){keep.Object, keep.Node} {
		tombstone, err := trim("a tombstone")
		Expect(err).NotTo(HaveOccurred())
		Expect(tombstone).To(Equal("a tombstone"), "what is no object passes")
	}
}

// The program's own manager is the one that keeps to its bound.
func TestTheProgramStopsInOrder(t *testing.T) {
	Expect := NewWithT(t).Expect
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := map[string]any{
			"/api":    metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
			"/api/v1": metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "nodes", Kind: "Node"}}},
			"/apis":   metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: "cluster.x-k8s.io", Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "cluster.x-k8s.io/v1beta2", Version: "v1beta2"}}}}},
			"/apis/cluster.x-k8s.io/v1beta2": metav1.APIResourceList{GroupVersion: "cluster.x-k8s.io/v1beta2", APIResources: []metav1.APIResource{
				{Name: "machines", Kind: "Machine", Namespaced: true},
			}},
		}[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // the manager cannot be made without it
	}))
	defer server.Close()
	c := &config.Config{}
	c.Metrics.BindAddress = "0"
	mgr, err := newManager(&rest.Config{Host: server.URL}, clusterv1.GroupVersion, c, &certificate{}, kept.New(inherit.Policy{}))
	Expect(err).NotTo(HaveOccurred())
	Expect(mgr).To(BeAssignableToTypeOf(orderly{}))
}

// Only keys are read of what they are looked up for, so nothing is copied.
func TestKeysCopyNothing(t *testing.T) {
	Expect := NewWithT(t).Expect
	c := newFilled(t, t.Context(), "Machine", 2, machineSent)
	chain, labels := &ownerchain.Chain{Reader: c}, map[string]bool{}
	for range 2 {
		list := &capi.MachineList{}
		Expect(chain.Members(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "prod"}, list)).To(HaveLen(2))
		labels[fmt.Sprintf("%p", list.Items[0].Labels)] = true
	}
	Expect(labels).To(HaveLen(1))
}
