// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

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
	mgr, err := newManager(&rest.Config{Host: server.URL}, c, &certificate{})
	Expect(err).NotTo(HaveOccurred())
	Expect(mgr).To(BeAssignableToTypeOf(orderly{}))
}

// Only keys are read of what they are looked up for, so nothing is copied.
func TestKeysCopyNothing(t *testing.T) {
	Expect := NewWithT(t).Expect
	c := newFilled(t, t.Context(), "Machine", 1, machineSent)
	chain, labels := &owners.Chain{Cache: c}, map[string]bool{}
	for range 2 {
		list := &clusterv1.MachineList{}
		Expect(chain.Members(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "prod"}, list)).To(HaveLen(1))
		labels[fmt.Sprintf("%p", list.Items[0].Labels)] = true
	}
	Expect(labels).To(HaveLen(1))
}
