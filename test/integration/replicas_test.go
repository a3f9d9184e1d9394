// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// Webhooks answer from every replica; the loop runs on the leader, and another one takes over when that is gone.
func TestReplicas(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WithoutWebhooks: true})
	other, err := s.StartReplica(s.ctx, "other")
	s.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { s.Expect(other.Stop()).To(Succeed()) })

	f := s.settle("replicas", declared())
	s.eventually(f.m, func(g Gomega) { g.Expect(f.m.Labels).To(HaveKeyWithValue("team", "ml")) })
	bare := stage.Machine(f.ms, "bare")
	for _, url := range []string{s.WebhookURL, other.WebhookURL} {
		s.Eventually(func(g Gomega) {
			g.Expect(string(s.review(url+"/mutate/machines", bare).Patch)).To(ContainSubstring(`"team":"ml"`), "replica %s", url)
		}).WithTimeout(patience).Should(Succeed(), "its cache may be a moment behind")
	}

	s.Expect(s.StopHeirloom()).To(Succeed())
	s.get(f.md)
	s.update(f.md, func() { f.md.Spec.Template.Labels["team"] = "web" })
	s.eventually(f.m, func(g Gomega) { g.Expect(f.m.Labels).To(HaveKeyWithValue("team", "web")) })
}

// Two instances with disjoint watch filters share a management cluster: each reconciles its own objects, and no others.
func TestDisjointWatchFilters(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WithoutWebhooks: true, Args: []string{"--watch-filter=red"}})
	blue, err := s.StartReplica(s.ctx, "blue", "--watch-filter=blue")
	s.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { s.Expect(blue.Stop()).To(Succeed()) })

	of := map[string]family{}
	for _, color := range []string{"red", "blue", "none"} {
		f := s.settle(color, declared())
		s.get(f.ms)
		s.update(f.ms, func() { f.ms.Labels[clusterv1.WatchLabel] = color })
		of[color] = f
	}
	inherits := func(color, team string) {
		ms := of[color].ms
		s.eventually(ms, func(g Gomega) { g.Expect(ms.Labels).To(HaveKeyWithValue("team", team)) })
	}
	inherits("red", "ml")
	inherits("blue", "ml")
	s.Expect(s.StopHeirloom()).To(Succeed())
	for _, color := range []string{"red", "blue", "none"} {
		md := of[color].md
		s.get(md)
		s.update(md, func() { md.Spec.Template.Labels["team"] = "web" })
	}
	inherits("blue", "web")
	s.touch(of["red"].ms)
	s.touch(of["none"].ms)
	s.HealthURL, s.MetricsURL = blue.HealthURL, blue.MetricsURL
	s.looksAgain(of["blue"].ms, func() { s.touch(of["blue"].ms) }) // it hears of changes in their order
	s.Consistently(func(g Gomega) {
		s.get(of["red"].ms)
		g.Expect(of["red"].ms.Labels).To(HaveKeyWithValue("team", "ml"))
		s.get(of["none"].ms)
		g.Expect(of["none"].ms.Labels).NotTo(HaveKey("team"))
	}).WithTimeout(2 * time.Second).Should(Succeed())
}

// reviewOf is an admission request about the create of an object.
func (s *scene) reviewOf(object client.Object) []byte {
	s.t.Helper()
	review, err := reviewOf(object)
	s.Expect(err).NotTo(HaveOccurred())
	body, err := json.Marshal(review)
	s.Expect(err).NotTo(HaveOccurred())
	return body
}

// review posts an admission request about the create of an object, as an API server would.
func (s *scene) review(url string, object client.Object) *admissionv1.AdmissionResponse {
	s.t.Helper()
	body := s.reviewOf(object)
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := insecure.Post(url, "application/json", bytes.NewReader(body))
	s.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	var review admissionv1.AdmissionReview
	s.Expect(json.NewDecoder(response.Body).Decode(&review)).To(Succeed())
	return review.Response
}

// reviewOf is what an API server asks about the create of an object.
func reviewOf(object client.Object) (admissionv1.AdmissionReview, error) {
	gvk, err := apiutil.GVKForObject(object, stage.Scheme())
	if err != nil {
		return admissionv1.AdmissionReview{}, err
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	return admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Operation: admissionv1.Create, Namespace: object.GetNamespace(), Name: object.GetName(),
			Kind:     metav1.GroupVersionKind(gvk),
			UserInfo: authenticationv1.UserInfo{Username: "somebody"},
			Object:   runtime.RawExtension{Object: object},
		},
	}, nil
}
