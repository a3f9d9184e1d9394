// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capabilities"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

// configuration has one webhook for Machines that are not labeled, and for Nodes.
func configuration(policy admissionregistrationv1.FailurePolicyType) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "heirloom"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "children.heirloom.dev", FailurePolicy: &policy, TimeoutSeconds: ptr.To[int32](2), SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"}, ReinvocationPolicy: ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://heirloom/mutate")},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"cluster.x-k8s.io", ""}, APIVersions: []string{"*"}, Resources: []string{"machines", "nodes"}},
			}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "unlabeled", Expression: "!has(object.metadata.labels) || !('skip' in object.metadata.labels)"}},
		}},
	}
}

const patch = `[{"op":"add","path":"/metadata/labels","value":{"node-restriction.kubernetes.io/a":"b"}},{"op":"add","path":"/metadata/managedFields/0","value":
	{"manager":"heirloom","operation":"Apply","apiVersion":"cluster.x-k8s.io/v1beta2","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{"f:node-restriction.kubernetes.io/a":{}}}}}}]`

func TestAdmission(t *testing.T) {
	for _, c := range []struct {
		name     string
		policy   admissionregistrationv1.FailurePolicyType
		fails    bool
		labels   map[string]string
		reached  string
		has      bool
		rejected bool
	}{
		{name: "patched", policy: "Fail", reached: "reached", has: true},
		{name: "a condition leaves it out", policy: "Fail", labels: map[string]string{"skip": ""}},
		{name: "fails open", policy: "Ignore", fails: true, reached: "failed"},
		{name: "fails closed", policy: "Fail", fails: true, rejected: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				var last apiserver.Write
				s := newServer(t, apiserver.Options{
					Stored: func(w apiserver.Write) { last = w },
					Webhook: func(_ context.Context, hook admissionregistrationv1.MutatingWebhook, body []byte) ([]byte, error) {
						Expect(*hook.ClientConfig.URL).To(Equal("https://heirloom/mutate?timeout=2s"))
						review := &admissionv1.AdmissionReview{}
						if err := json.Unmarshal(body, review); err != nil || c.fails {
							return nil, errors.Join(err, errors.New("no route"))
						}
						review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
						if review.Request.Operation == admissionv1.Create {
							review.Response.Patch, review.Response.PatchType = []byte(patch), ptr.To(admissionv1.PatchTypeJSONPatch)
						}
						return json.Marshal(review)
					},
				})
				admin := newClient(t, s, "admin")
				Expect(admin.Create(t.Context(), configuration(c.policy))).To(Succeed())
				m := machine("m")
				m.Labels = c.labels
				err := admin.Create(t.Context(), m)
				if c.rejected {
					Expect(apierrors.IsInternalError(err)).To(BeTrue(), "%v", err)
					return
				}
				Expect(err).NotTo(HaveOccurred())
				Expect(last.Admission).To(Equal(c.reached))
				Expect(m.Labels["node-restriction.kubernetes.io/a"] == "b").To(Equal(c.has))
				version := m.ResourceVersion
				Expect(admin.Patch(t.Context(), m, client.RawPatch("application/merge-patch+json", []byte(`{}`)))).To(Succeed())
				Expect(m.ResourceVersion).To(Equal(version), "a write that changes nothing")
				kubelet := newClient(t, s, "system:node:n", "system:nodes")
				err = kubelet.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{"a": "b"}}})
				Expect(apierrors.IsForbidden(err)).To(Equal(!c.fails), "what a webhook adds counts as the kubelet's: %v", err)
			})
		})
	}
}

func TestDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		s := newServer(t, apiserver.Options{})
		d, err := discovery.NewDiscoveryClientForConfig(s.Client("admin"))
		Expect(err).NotTo(HaveOccurred())
		for range 2 {
			_, lists, err := d.ServerGroupsAndResources()
			Expect(err).NotTo(HaveOccurred())
			found := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"watch"}}, lists)
			Expect(found).To(ContainElement(HaveField("GroupVersion", clusterv1.GroupVersion.String())))
			d.UseLegacyDiscovery = true
		}
		schemas := &capabilities.Schemas{Client: d.OpenAPIV3()}
		_, err = schemas.ControlPlane(t.Context(), schema.GroupVersionKind{Group: inherit.ControlPlaneGroup, Version: "v1", Kind: "Any"})
		Expect(err).To(MatchError(ContainSubstring("the API server publishes none")))
		paths, err := d.OpenAPIV3().Paths()
		Expect(err).NotTo(HaveOccurred())
		raw, err := paths["apis/"+clusterv1.GroupVersion.String()].Schema("application/json")
		Expect(err).NotTo(HaveOccurred())
		Expect(string(raw)).To(ContainSubstring("x-kubernetes-group-version-kind"))
	})
}

func BenchmarkMachine(b *testing.B) {
	s, err := apiserver.New(apiserver.Options{Name: "management", CRDs: clusterAPI()})
	if err != nil {
		b.Fatal(err)
	}
	c, err := client.New(s.Client("admin"), client.Options{Scheme: testScheme(), Mapper: s.Mapper()})
	if err != nil {
		b.Fatal(err)
	}
	m := machine("m")
	if err := c.Create(b.Context(), m); err != nil {
		b.Fatal(err)
	}
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if err := c.Get(b.Context(), client.ObjectKeyFromObject(m), m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("write", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			m.Annotations = map[string]string{"n": string(rune('a' + i%20))}
			if err := c.Update(b.Context(), m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			if _, err := apiserver.New(apiserver.Options{CRDs: clusterAPI()}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
