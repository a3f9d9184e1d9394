// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/heirloom-dev/heirloom/pkg/capabilities"
)

// discoverable is an API server that serves nothing but these kinds of Cluster API.
type discoverable struct{ kinds atomic.Pointer[[]string] }

func (d *discoverable) start(t *testing.T, kinds ...string) *rest.Config {
	d.kinds.Store(&kinds)
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

func (d *discoverable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	group := metav1.APIGroupList{}
	kinds := metav1.APIResourceList{GroupVersion: "cluster.x-k8s.io/v1beta2"}
	for _, kind := range *d.kinds.Load() {
		kinds.APIResources = append(kinds.APIResources, metav1.APIResource{Name: kind, Kind: kind, Namespaced: true})
		version := metav1.GroupVersionForDiscovery{GroupVersion: "cluster.x-k8s.io/v1beta2", Version: "v1beta2"}
		group.Groups = []metav1.APIGroup{{Name: "cluster.x-k8s.io", Versions: []metav1.GroupVersionForDiscovery{version}}}
	}
	answer := map[string]any{"/api": metav1.APIVersions{}, "/apis": group, "/apis/cluster.x-k8s.io/v1beta2": kinds}[r.URL.Path]
	if r.URL.Path == "/apis/cluster.x-k8s.io" && len(group.Groups) > 0 {
		answer = group.Groups[0]
	}
	w.Header().Set("Content-Type", "application/json")
	if answer == nil {
		w.WriteHeader(http.StatusNotFound)
		answer = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
	}
	_ = json.NewEncoder(w).Encode(answer) // the test fails without it
}

func TestClusterAPINeedsEveryKind(t *testing.T) {
	Expect := NewWithT(t).Expect
	all := []string{"Cluster", "ClusterClass", "MachineDeployment", "MachinePool", "MachineSet", "Machine"}
	var server discoverable
	config := server.start(t)

	Expect(installed(config)).To(MatchError("the API server does not serve Cluster, ClusterClass, Machine, MachineDeployment, MachinePool, MachineSet: " +
		"install Cluster API v1.11 or later first, which serves cluster.x-k8s.io/v1beta2"))
	for _, kind := range all {
		rest := slices.DeleteFunc(slices.Clone(all), func(k string) bool { return k == kind })
		server.kinds.Store(&rest)
		err := installed(config)
		Expect(err).To(MatchError(capabilities.ErrNoClusterAPI))
		Expect(err).To(MatchError(HavePrefix("the API server does not serve " + kind + ": ")))
	}
	server.kinds.Store(&all)
	Expect(installed(config)).To(Succeed())
}

// An API server that cannot be asked is not one without Cluster API: the program ends and says why.
func TestAnUnreachableAPIServerEndsTheProgram(t *testing.T) {
	Expect := NewWithT(t).Expect
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	err := awaitClusterAPI(t.Context(), &rest.Config{Host: server.URL}, "127.0.0.1:0")
	Expect(err).To(MatchError(ContainSubstring("connection refused")))
	forbidding := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer forbidding.Close()
	err = awaitClusterAPI(t.Context(), &rest.Config{Host: forbidding.URL}, "127.0.0.1:0")
	Expect(err).To(Satisfy(apierrors.IsForbidden))
}

func TestWaiting(t *testing.T) {
	Expect, eventually := NewWithT(t).Expect, NewWithT(t).Eventually
	address := freeAddress(t)
	var looks atomic.Int32
	found := make(chan struct{})
	w := waiting{every: time.Millisecond, remind: time.Millisecond, look: func() error {
		if looks.Add(1) == 2 {
			return errors.New("connection refused") // while an API server restarts
		}
		select {
		case <-found:
			return nil
		default:
			return capabilities.ErrNoClusterAPI
		}
	}}
	ended := make(chan error, 1)
	go func() { ended <- w.wait(t.Context(), address, capabilities.ErrNoClusterAPI) }()

	probe := func(path string) func() int {
		return func() int {
			response, err := http.Get("http://" + address + path) //nolint:noctx // the test has a deadline
			if err != nil {
				return 0
			}
			return response.StatusCode
		}
	}
	eventually(probe("/healthz")).Should(Equal(http.StatusOK), "a restart would not help")
	Expect(probe("/readyz")()).To(Equal(http.StatusServiceUnavailable))
	eventually(looks.Load).Should(BeNumerically(">", 3))
	Expect(ended).NotTo(Receive())

	close(found)
	eventually(ended).Should(Receive(BeNil()))
	listener, err := net.Listen("tcp", address)
	Expect(err).NotTo(HaveOccurred(), "the address is free for the program")
	Expect(listener.Close()).To(Succeed())
}

func TestOneThatWaitsCanBeStopped(t *testing.T) {
	Expect := NewWithT(t).Expect
	var server discoverable
	config := server.start(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	Expect(awaitClusterAPI(ctx, config, "127.0.0.1:0")).To(Succeed())
}

func freeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	return listener.Addr().String()
}
