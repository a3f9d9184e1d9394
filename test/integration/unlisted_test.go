// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// many are more Machines than the loop has workers for.
const many = 12

// A provider whose conversion webhook is dead, so that its kind cannot be listed, costs its own objects what they inherit, until
// it is alive again. Nothing else waits: no Machine of another provider, no probe, no replica and no next leader.
func TestAKindThatCannotBeListedKeepsNothingElseWaiting(t *testing.T) {
	t.Parallel()
	s := sceneOn(t, lendLast(t, controlplane.Options{}), stage.Options{WithoutWebhooks: true, WithoutProgram: true})
	s.needsStreamedLists()

	refusing := s.brokenKind(inherit.InfrastructureGroup, "RefusingMachine", func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
		http.Error(w, "out of order", http.StatusInternalServerError)
	})
	before := s.settle("before", declared())
	waiting := s.machines(before, refusing, func(m *clusterv1.Machine, name string) {
		m.Spec.InfrastructureRef.Kind, m.Spec.InfrastructureRef.Name = refusing.kind, name
	})
	for _, m := range waiting {
		s.create(refusing.object(m.Name, before.cluster.Name, *metav1.NewControllerRef(m, clusterv1.GroupVersion.WithKind("Machine"))))
	}
	first, err := s.StartReplica(s.ctx, "first")
	s.Expect(err).NotTo(HaveOccurred(), "it becomes ready")
	t.Cleanup(func() { _ = first.Stop() })
	s.HealthURL, s.MetricsURL = first.HealthURL, first.MetricsURL
	s.inherits("team", "ml", append(waiting, before.m)...)

	silent := s.brokenKind(inherit.ControlPlaneGroup, "SilentControlPlane", func(_ http.ResponseWriter, r *http.Request, repaired <-chan struct{}) {
		select {
		case <-repaired:
		case <-r.Context().Done():
		}
	})
	s.create(silent.object("cp", before.cluster.Name))
	cp := silent.object("cp", before.cluster.Name)
	s.get(cp)
	controlled := s.machines(before, silent, func(m *clusterv1.Machine, _ string) {
		m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cp, cp.GroupVersionKind())}
	})
	after := s.settle("after", declared())
	s.inherits("team", "ml", after.m)
	s.expectReady(first.HealthURL)

	next, err := s.StartReplica(s.ctx, "next")
	s.Expect(err).NotTo(HaveOccurred(), "it becomes ready")
	t.Cleanup(func() { _ = next.Stop() })
	s.HealthURL, s.MetricsURL = next.HealthURL, next.MetricsURL
	s.Expect(first.Stop()).To(Succeed())
	s.get(before.md)
	s.update(before.md, func() { before.md.Spec.Template.Labels["team"] = "web" })
	s.inherits("team", "web", append(waiting, before.m)...)
	s.expectReady(next.HealthURL)
	s.expectEvent("ProviderKindUnavailable", "Cluster", before.cluster.Name, ContainSubstring("does not answer in time for this kind"))
	// The Event may be of the first replica, and the next one only now finds out why.
	s.Eventually(func() string { return s.read(filepath.Join(s.dir, "next.log")) }).
		WithTimeout(patience).WithPolling(polling).Should(ContainSubstring("out of order"), "the reason")

	refusing.repair()
	silent.repair()
	for _, m := range waiting {
		s.eventuallyListed(refusing.object(m.Name, before.cluster.Name), "team", "web")
	}
	for _, m := range controlled {
		s.eventuallyListed(m, "declared", "SilentControlPlane")
	}
}

// brokenKind is a kind with two versions, between which a webhook of the test converts. Objects are stored in the older one, and a
// list asks for the newer.
type brokenKind struct {
	group, kind string
	// repair makes the webhook work.
	repair func()
}

// brokenKind installs a kind whose conversion webhook does as it likes until it is repaired.
func (s *scene) brokenKind(group, kind string, broken func(http.ResponseWriter, *http.Request, <-chan struct{})) brokenKind {
	s.t.Helper()
	repaired := make(chan struct{})
	p := brokenKind{group: group, kind: kind, repair: sync.OnceFunc(func() { close(repaired) })}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-repaired:
		default:
			broken(w, r, repaired)
			return
		}
		convert(w, r)
	}))
	s.t.Cleanup(func() {
		p.repair() // the server ends with its last request, and one may still wait for the repair
		server.CloseClientConnections()
		server.Close()
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	plural := strings.ToLower(kind) + "s"
	s.establish(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names":    map[string]any{"kind": kind, "listKind": kind + "List", "plural": plural, "singular": strings.ToLower(kind)},
			"versions": []any{anyVersion("v1beta1", true), anyVersion("v1beta2", false)},
			"conversion": map[string]any{"strategy": "Webhook", "webhook": map[string]any{
				"clientConfig":             map[string]any{"url": server.URL, "caBundle": base64.StdEncoding.EncodeToString(ca)},
				"conversionReviewVersions": []any{"v1"},
			}},
		},
	}})
	return p
}

// needsStreamedLists skips a test of a kind that cannot be listed where the API server does not stream lists (feature gate WatchList).
// Such a server answers an informer out of its own cache. If it cannot fill that, the answer is an empty list without an error,
// and no client can tell.
func (s *scene) needsStreamedLists() {
	s.t.Helper()
	c, err := client.NewWithWatch(s.AdminConfig(), client.Options{})
	s.Expect(err).NotTo(HaveOccurred())
	initial := metav1.ListOptions{
		SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
	}
	stream, err := c.Watch(s.ctx, &corev1.ConfigMapList{}, &client.ListOptions{Raw: &initial})
	if apierrors.IsInvalid(err) {
		s.t.Skipf("Kubernetes %s does not serve streamed lists: it answers that there is nothing of a kind that it cannot convert", s.Version())
	}
	s.Expect(err).NotTo(HaveOccurred())
	stream.Stop()
}

// object is one in the version that is stored, so that it can be read and written without the webhook. It declares a label for
// Machines.
func (p brokenKind) object(name, cluster string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"machineTemplate": map[string]any{"metadata": map[string]any{"labels": map[string]any{"declared": p.kind}}},
	}}}
	u.SetAPIVersion(p.group + "/v1beta1")
	u.SetKind(p.kind)
	u.SetNamespace(cluster)
	u.SetName(name)
	u.SetLabels(map[string]string{clusterv1.ClusterNameLabel: cluster})
	u.SetOwnerReferences(owners)
	return u
}

// convert answers a ConversionReview: the versions differ by name only.
func convert(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID               string           `json:"uid"`
			DesiredAPIVersion string           `json:"desiredAPIVersion"`
			Objects           []map[string]any `json:"objects"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, object := range review.Request.Objects {
		object["apiVersion"] = review.Request.DesiredAPIVersion
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
		"response": map[string]any{
			"uid": review.Request.UID, "convertedObjects": review.Request.Objects, "result": map[string]any{"status": "Success"},
		},
	})
}

// machines creates many Machines that need the provider.
func (s *scene) machines(f family, p brokenKind, need func(m *clusterv1.Machine, name string)) []*clusterv1.Machine {
	s.t.Helper()
	var all []*clusterv1.Machine
	for i := range many {
		name := fmt.Sprintf("%s-%d", strings.ToLower(p.kind), i)
		m := stage.Machine(f.ms, name)
		need(m, name)
		s.create(m)
		all = append(all, m)
	}
	return all
}

// inherits waits until all have the label.
func (s *scene) inherits(key, value string, machines ...*clusterv1.Machine) {
	s.t.Helper()
	for _, m := range machines {
		s.eventually(m, func(g Gomega) { g.Expect(m.Labels).To(HaveKeyWithValue(key, value)) })
	}
}

// eventuallyListed waits for a label that an object gets once its kind is listed. Informers try again every minute at least.
func (s *scene) eventuallyListed(object client.Object, key, value string) {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		g.Expect(s.Client.Get(s.ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		g.Expect(object.GetLabels()).To(HaveKeyWithValue(key, value))
	}).WithTimeout(4 * patience).WithPolling(polling).Should(Succeed())
}

func (s *scene) expectReady(health string) {
	s.t.Helper()
	for range 3 {
		response, err := http.Get(health + "/readyz")
		s.Expect(err).NotTo(HaveOccurred())
		s.Expect(response.Body.Close()).To(Succeed())
		s.Expect(response).To(HaveHTTPStatus(http.StatusOK))
	}
}
