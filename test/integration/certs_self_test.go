// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// authority is the Secret of a Heirloom that makes its own certificate.
var authority = types.NamespacedName{Namespace: stage.Namespace, Name: "heirloom-webhook-authority"}

// selfScene is a scene in which Heirloom makes its own certificate, with further arguments.
func selfScene(t *testing.T, args ...string) (*scene, []string) {
	t.Helper()
	args = append([]string{"--webhook-cert-secret=" + authority.String(), "--webhook-cert-dns-names=127.0.0.1"}, args...)
	return newScene(t, stage.Options{PatientWebhooks: true, Args: args, Values: map[string]any{"certificates": map[string]any{"mode": "self"}}}), args
}

// Serving certificate and CA are replaced several times over while two replicas answer. No call fails, and no object is
// stored without what it inherits.
func TestOwnCertificatesAreReplacedUnderWrites(t *testing.T) {
	t.Parallel()
	s, args := selfScene(t, "--webhook-cert-validity=18s", "--webhook-cert-ca-validity=54s", "--webhook-cert-ca-grace=6s")
	log := tail{path: filepath.Join(s.dir, "other.log")}
	other, err := s.StartReplica(s.ctx, "other", args...)
	s.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		s.Expect(other.Stop()).To(Succeed())
		if t.Failed() {
			showLog(t, log)
		}
		expectNoRace(t, log)
	})
	s.eventuallyPublishesOneCA()
	s.callAboutMachines(other.WebhookURL)
	first, err := s.publishedBundle(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())

	f := s.settle("streams", declared())
	s.Eventually(func(g Gomega) {
		g.Expect(string(s.review(other.WebhookURL+"/mutate/machines", stage.Machine(f.ms, "bare")).Patch)).To(ContainSubstring(`"team":"ml"`))
	}).WithTimeout(patience).Should(Succeed(), "its cache may be a moment behind")
	stream := s.startStream("stream", f, server{s.WebhookURL, s.HealthURL}, server{other.WebhookURL, other.HealthURL})
	for again := 1; !s.rotates(stream, first); again++ {
		t.Logf("once more, because requests took up to %s: %v", stream.slowest, stream.failures)
		stream = s.startStream(fmt.Sprintf("stream-%d", again), f, server{s.WebhookURL, s.HealthURL}, server{other.WebhookURL, other.HealthURL})
	}
	stream.end()

	s.get(f.md)
	secret := &corev1.Secret{}
	s.Expect(s.Client.Get(s.ctx, authority, secret)).To(Succeed())
	s.Expect(secret.Type).To(Equal(corev1.SecretTypeTLS))
}

// rotates waits until the first CA is no longer published and a stream has seen another CA and more certificates than CAs, and stops it. It
// reports false if it has stalled, which tells nothing.
func (s *scene) rotates(stream *stream, first []byte) bool {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		if stream.stalled() {
			return
		}
		leaves, cas := stream.seen()
		g.Expect(cas).To(BeNumerically(">=", 2), "CAs")
		g.Expect(leaves).To(BeNumerically(">", cas), "a certificate is renewed without another CA, too")
		bundle, err := s.publishedBundle(s.ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(bundle)).NotTo(ContainSubstring(string(first)), "the first CA is no longer published")
		g.Expect(stream.failed()).To(BeEmpty())
	}).WithTimeout(3 * time.Minute).WithPolling(time.Second).Should(Succeed())
	stream.halt()
	return !stream.stalled()
}

// callAboutMachines makes the API server ask another replica about Machines.
func (s *scene) callAboutMachines(url string) {
	s.t.Helper()
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	s.Expect(s.Client.Get(s.ctx, types.NamespacedName{Name: "heirloom"}, configuration)).To(Succeed())
	before := configuration.DeepCopy()
	for i := range configuration.Webhooks {
		if webhook := &configuration.Webhooks[i]; webhook.Name == "machines.heirloom.dev" {
			webhook.ClientConfig.URL = ptr.To(url + "/mutate/machines")
		}
	}
	s.Expect(s.Client.Patch(s.ctx, configuration, client.StrategicMergeFrom(before))).To(Succeed())
}

// inheritsInTheWrite waits until a MachineSet inherits at its creation: the API server takes a moment to see a new bundle.
func (s *scene) inheritsInTheWrite(name string) {
	s.t.Helper()
	f := s.settle(name, declared())
	number := 0
	s.Eventually(func(g Gomega) {
		number++
		ms := stage.MachineSet(f.md, name+string(rune('a'+number%26)))
		g.Expect(s.Client.Create(s.ctx, ms, client.DryRunAll)).To(Succeed())
		g.Expect(ms.Spec.Template.Labels).To(HaveKeyWithValue("team", "ml"))
	}).WithTimeout(patience).Should(Succeed())
}

// The chart leaves the CA bundle out, so that an upgrade does not take away what the program has published: neither by
// server-side apply, which is Helm 4's way, nor by a three-way merge, which was Helm 3's.
func TestAHelmUpgradeLeavesThePublishedCA(t *testing.T) {
	t.Parallel()
	s, _ := selfScene(t)
	s.eventuallyPublishesOneCA()
	root, err := controlplane.RepositoryRoot(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	kubeconfig := filepath.Join(s.dir, "admin.kubeconfig")
	s.Expect(s.WriteKubeconfig(kubeconfig, "helm", "system:masters")).To(Succeed())
	recorder, err := controlplane.RecordVersions(s.ctx, s.AdminConfig(),
		admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"))
	s.Expect(err).NotTo(HaveOccurred())

	for i, flags := range [][]string{{"--take-ownership"}, {}, {"--server-side=false"}} {
		seconds := 3 + i
		values := filepath.Join(s.dir, "values.yaml")
		raw, err := json.Marshal(map[string]any{
			"deployment": map[string]any{"enabled": i == 1}, "certificates": map[string]any{"mode": "self"},
			"webhooks": map[string]any{"url": s.WebhookURL, "machines": map[string]any{"timeoutSeconds": seconds}},
		})
		s.Expect(err).NotTo(HaveOccurred())
		s.Expect(os.WriteFile(values, raw, 0o600)).To(Succeed())
		args := append([]string{"upgrade", "--install", "heirloom", filepath.Join(root, "deploy", "chart", "heirloom"),
			"--namespace", stage.Namespace, "--values", values}, flags...)
		_, _, err = controlplane.Helm(s.ctx, kubeconfig, args...)
		s.Expect(err).NotTo(HaveOccurred())
		s.Eventually(func() any { return timeoutOfMachines(recorder) }).WithTimeout(patience).Should(BeEquivalentTo(seconds))
	}
	s.Expect(recorder.Stop()).To(Succeed())
	versions := recorder.Versions("", "heirloom")
	s.Expect(len(versions)).To(BeNumerically(">=", 3))
	for _, version := range versions {
		webhooks, _, err := unstructured.NestedSlice(version.Object.Object, "webhooks")
		s.Expect(err).NotTo(HaveOccurred())
		for _, webhook := range webhooks {
			s.Expect(webhook).To(HaveKeyWithValue("clientConfig", HaveKeyWithValue("caBundle", Not(BeEmpty()))))
		}
	}
	s.inheritsInTheWrite("upgraded")
}

// timeoutOfMachines returns the timeout of the webhook for Machines in the last version that was recorded.
func timeoutOfMachines(recorder *controlplane.Recorder) any {
	versions := recorder.Versions("", "heirloom")
	if len(versions) == 0 {
		return nil
	}
	webhooks, _, _ := unstructured.NestedSlice(versions[len(versions)-1].Object.Object, "webhooks")
	for _, webhook := range webhooks {
		if fields, ok := webhook.(map[string]any); ok && fields["name"] == "machines.heirloom.dev" {
			return fields["timeoutSeconds"]
		}
	}
	return nil
}
