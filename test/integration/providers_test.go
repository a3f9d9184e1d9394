// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// A provider may be installed after Heirloom and serve its kinds in a version that no other kind of the group has; its upgrade may
// replace the version. The loop finds the served version.
func TestProvidersInOtherVersions(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WithoutWebhooks: true, Args: []string{"--sync-period=5s"}})
	f := s.settle("later", declared())
	s.inherits("team", "ml", f.m)

	infrastructure := providerKind{group: inherit.InfrastructureGroup, kind: "Late", version: "v1alpha1"}
	controlPlane := providerKind{group: inherit.ControlPlaneGroup, kind: "Late", version: "v1alpha1"}
	s.install(infrastructure, []any{anyVersion("v1alpha1", true)}, nil)
	crd := s.install(controlPlane, []any{anyVersion("v1alpha1", true)}, nil)
	cp := controlPlane.object("cp", f.cluster.Name)
	s.create(cp)
	m := stage.Machine(f.ms, "late")
	m.Spec.InfrastructureRef.Kind, m.Spec.InfrastructureRef.Name = "Late", "late"
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cp, cp.GroupVersionKind())}
	s.create(m)
	s.create(infrastructure.object("late", f.cluster.Name, stage.ControlledBy(m, "Machine")))
	s.inherits("declared", "Late", m, infrastructure.object("late", f.cluster.Name))

	before, old := crd.DeepCopy(), anyVersion("v1alpha1", false)
	old["served"] = false
	s.Expect(unstructured.SetNestedSlice(crd.Object, []any{anyVersion("v1beta1", true), old}, "spec", "versions")).To(Succeed())
	s.Expect(s.Client.Patch(s.ctx, crd, client.MergeFrom(before))).To(Succeed())
	cp.SetAPIVersion(inherit.ControlPlaneGroup + "/v1beta1")
	for _, value := range []string{"once", "twice"} {
		patch := fmt.Appendf(nil, `{"spec":{"machineTemplate":{"metadata":{"labels":{"declared":%q}}}}}`, value)
		s.Eventually(func() error { return s.Client.Patch(s.ctx, cp, client.RawPatch(types.MergePatchType, patch)) }).
			WithTimeout(patience).WithPolling(polling).Should(Succeed(), "it is served")
		s.inherits("declared", value, m)
	}
}

// If the conversion webhook of a provider fails, so that its kind cannot be listed, only the objects of this kind inherit nothing until
// it works again. Nothing else waits: no Machine of another provider, no probe, no replica and no next leader.
func TestUnlistableKindDelaysOnlyItsOwnObjects(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WithoutWebhooks: true, WithoutProgram: true})
	s.needsStreamedLists()
	refusing, repair := s.brokenProvider(inherit.InfrastructureGroup, "RefusingMachine")
	before := s.settle("before", declared())
	// The loop has fewer workers.
	waiting, infra := make([]client.Object, 12), make([]client.Object, 12)
	for i := range waiting {
		m := stage.Machine(before.ms, fmt.Sprintf("waiting-%d", i))
		m.Spec.InfrastructureRef.Kind, m.Spec.InfrastructureRef.Name = refusing.kind, m.Name
		s.create(m)
		waiting[i], infra[i] = m, refusing.object(m.Name, before.cluster.Name, stage.ControlledBy(m, "Machine"))
		s.create(infra[i])
	}
	first, err := s.StartReplica(s.ctx, "first")
	s.Expect(err).NotTo(HaveOccurred(), "it becomes ready")
	t.Cleanup(func() { _ = first.Stop() })
	s.inherits("team", "ml", append(waiting, before.m)...)

	after := s.settle("after", declared())
	s.inherits("team", "ml", after.m)
	s.expectReady(first.HealthURL)
	s.Eventually(func() string { return s.read(filepath.Join(s.dir, "first.log")) }).
		WithTimeout(patience).WithPolling(polling).Should(ContainSubstring("out of order"), "the reason")

	next, err := s.StartReplica(s.ctx, "next")
	s.Expect(err).NotTo(HaveOccurred(), "it becomes ready")
	t.Cleanup(func() { _ = next.Stop() })
	s.Expect(first.Stop()).To(Succeed())
	s.get(before.md)
	s.update(before.md, func() { before.md.Spec.Template.Labels["team"] = "web" })
	s.inherits("team", "web", append(waiting, before.m)...)
	s.expectReady(next.HealthURL)
	s.expectEvent("ProviderKindUnavailable", "Cluster", before.cluster.Name, ContainSubstring("does not answer in time for this kind"))

	repair()
	s.inherits("team", "web", infra...)
}

// providerKind is a kind without a schema, and the version in which it is stored.
type providerKind struct{ group, kind, version string }

// object returns an object that declares a label for Machines.
func (p providerKind) object(name, cluster string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"machineTemplate": map[string]any{"metadata": map[string]any{"labels": map[string]any{"declared": p.kind}}},
	}}}
	u.SetAPIVersion(p.group + "/" + p.version)
	u.SetKind(p.kind)
	u.SetNamespace(cluster)
	u.SetName(name)
	u.SetLabels(map[string]string{clusterv1.ClusterNameLabel: cluster})
	u.SetOwnerReferences(owners)
	return u
}

// anyVersion returns a version of a kind without a schema.
func anyVersion(name string, storage bool) map[string]any {
	anything := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	return map[string]any{"name": name, "served": true, "storage": storage, "schema": map[string]any{"openAPIV3Schema": anything}}
}

// install installs a kind until the test has ended. It waits until the API server serves the kind and lists it in discovery: an earlier
// client would not find the kind.
func (s *scene) install(p providerKind, versions []any, conversion any) *unstructured.Unstructured {
	s.t.Helper()
	plural := strings.ToLower(p.kind) + "s"
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + p.group},
		"spec": map[string]any{
			"group": p.group, "scope": "Namespaced", "versions": versions, "conversion": conversion,
			"names": map[string]any{"kind": p.kind, "listKind": p.kind + "List", "plural": plural, "singular": strings.ToLower(p.kind)},
		},
	}}
	content, err := crd.MarshalJSON()
	s.Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(s.t.TempDir(), crd.GetName()+".yaml")
	s.Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
	s.Expect(s.InstallCRDs(s.ctx, file)).To(Succeed())
	s.t.Cleanup(func() { // so that the next test with this API server does not have the kind
		ctx := context.WithoutCancel(s.ctx)
		s.Expect(s.Client.Delete(ctx, crd.DeepCopy())).To(Succeed())
		s.Eventually(func() error { return s.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd) }).
			WithTimeout(patience).WithPolling(polling).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})
	return crd
}

// brokenProvider installs a kind with two versions and a conversion webhook of the test, which fails until repair is called. Objects are stored in
// the older version, and a list asks for the newer version.
func (s *scene) brokenProvider(group, kind string) (p providerKind, repair func()) {
	s.t.Helper()
	var repaired atomic.Bool
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !repaired.Load() {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		convert(w, r)
	}))
	s.t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	p = providerKind{group: group, kind: kind, version: "v1beta1"}
	s.install(p, []any{anyVersion("v1beta1", true), anyVersion("v1beta2", false)}, map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"clientConfig":             map[string]any{"url": server.URL, "caBundle": base64.StdEncoding.EncodeToString(ca)},
		"conversionReviewVersions": []any{"v1"},
	}})
	repair = func() { repaired.Store(true) }
	s.t.Cleanup(repair) // so that the kind can be deleted
	return p, repair
}

// convert answers a ConversionReview: the versions differ only in their names.
func convert(w http.ResponseWriter, r *http.Request) {
	review := &unstructured.Unstructured{}
	if err := json.NewDecoder(r.Body).Decode(&review.Object); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request, _ := review.Object["request"].(map[string]any)
	objects, _ := request["objects"].([]any)
	for _, object := range objects {
		object.(map[string]any)["apiVersion"] = request["desiredAPIVersion"]
	}
	review.Object = map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": map[string]any{
		"uid": request["uid"], "convertedObjects": objects, "result": map[string]any{"status": "Success"},
	}}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review.Object)
}

// needsStreamedLists skips a test of a kind that cannot be listed if the API server does not stream lists (feature gate WatchList).
// Without it, an API server answers an informer from its own cache. If it cannot fill the cache, the answer is an empty list without
// an error, and a client cannot see the difference.
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

// inherits waits until all objects have the label. Informers of a broken kind try again at least every minute.
func (s *scene) inherits(key, value string, objects ...client.Object) {
	s.t.Helper()
	for _, object := range objects {
		s.Eventually(func(g Gomega) {
			g.Expect(s.Client.Get(s.ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			g.Expect(object.GetLabels()).To(HaveKeyWithValue(key, value))
		}).WithTimeout(4*patience).WithPolling(polling).Should(Succeed(), "%T %s", object, object.GetName())
	}
}

func (s *scene) expectReady(health string) {
	s.t.Helper()
	response, err := http.Get(health + "/readyz")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(response.Body.Close()).To(Succeed())
	s.Expect(response).To(HaveHTTPStatus(http.StatusOK))
}
