// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// authority is the Secret with the certificate that Heirloom makes itself.
var authority = types.NamespacedName{Namespace: stage.Namespace, Name: "heirloom-webhook-authority"}

func ownCertificate(hosts ...string) []string {
	return []string{"--webhook-cert-secret=" + authority.String(), "--webhook-cert-dns-names=" + strings.Join(hosts, ",")}
}

// Without cert-manager, a fresh installation becomes ready.
func TestOwnCertificates(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{
		FailClosed: true, Host: "localhost", Args: ownCertificate("localhost"),
		Values: map[string]any{"certificates": map[string]any{"mode": "self"}},
	})
	s.eventuallyPublishesOneCA()
	s.inheritsInTheWrite("before")
	t.Run("two replicas", func(t *testing.T) { s.in(t).testReplicasWithOneCertificate() })
	t.Run("helm upgrade", func(t *testing.T) { s.in(t).testUpgradeLeavesThePublishedCA() })
}

// All replicas serve the certificate in the Secret, which is valid for the host names of all replicas, and both webhook configurations
// have its CA. If the Secret is deleted, the replicas create it again and serve its certificate, and the API server trusts it.
func (s *scene) testReplicasWithOneCertificate() {
	first, err := s.publishedBundle(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	log := tail{path: filepath.Join(s.dir, "other.log")}
	other, err := s.StartReplica(s.ctx, "other", append(ownCertificate("localhost", "other.example.com"), "--webhook-cert-dir="+s.t.TempDir())...)
	s.Expect(err).NotTo(HaveOccurred())
	s.t.Cleanup(func() {
		s.Expect(other.Stop()).To(Succeed())
		if s.t.Failed() {
			showLog(s.t, log)
		}
		expectNoRace(s.t, log)
	})
	s.eventuallyServe(s.WebhookURL, other.WebhookURL)
	s.Expect(s.publishedBundle(s.ctx)).To(Equal(first), "the certificate changes, the CA does not")

	secret := &corev1.Secret{}
	s.Expect(s.Client.Get(s.ctx, authority, secret)).To(Succeed())
	s.Expect(secret.Type).To(Equal(corev1.SecretTypeTLS))
	s.Expect(s.Client.Delete(s.ctx, secret)).To(Succeed())
	s.Eventually(func() ([]byte, error) { return s.publishedBundle(s.ctx) }).WithTimeout(patience).ShouldNot(Equal(first))
	s.eventuallyServe(s.WebhookURL, other.WebhookURL)
	s.eventuallyPublishesOneCA()
	s.inheritsInTheWrite("after")
}

// eventuallyServe waits until all servers serve the certificate in the Secret, and a client with the published CA trusts them.
func (s *scene) eventuallyServe(urls ...string) {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		secret := &corev1.Secret{}
		g.Expect(s.Client.Get(s.ctx, authority, secret)).To(Succeed())
		pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		g.Expect(err).NotTo(HaveOccurred())
		bundle, err := s.publishedBundle(s.ctx)
		g.Expect(err).NotTo(HaveOccurred())
		pool := x509.NewCertPool()
		g.Expect(pool.AppendCertsFromPEM(bundle)).To(BeTrue())
		g.Expect(pair.Leaf.DNSNames).To(ConsistOf("localhost", "other.example.com"))
		for _, url := range urls {
			dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: "localhost"}}
			connection, err := dialer.DialContext(s.ctx, "tcp", strings.TrimPrefix(url, "https://"))
			g.Expect(err).NotTo(HaveOccurred(), url)
			served := connection.(*tls.Conn).ConnectionState().PeerCertificates[0]
			g.Expect(connection.Close()).To(Succeed())
			g.Expect(served.Equal(pair.Leaf)).To(BeTrue(), url)
		}
	}).WithTimeout(patience).WithPolling(tempo).Should(Succeed())
}

// inheritsInTheWrite waits until a MachineSet inherits at its creation: the API server uses a new bundle only after a moment.
func (s *scene) inheritsInTheWrite(name string) {
	s.t.Helper()
	s.ensureNamespace(name)
	cluster := stage.Cluster(name, name)
	s.create(cluster)
	md := stage.MachineDeployment(cluster, name, declared())
	s.Eventually(func() error { return s.Client.Create(s.ctx, md) }).WithTimeout(patience).Should(Succeed())
	s.Eventually(func(g Gomega) {
		ms := stage.MachineSet(md, name)
		g.Expect(s.Client.Create(s.ctx, ms, client.DryRunAll)).To(Succeed())
		g.Expect(ms.Spec.Template.Labels).To(HaveKeyWithValue("team", "ml"))
	}).WithTimeout(patience).Should(Succeed())
}

// helm upgrade keeps the CA bundle that the program has published, because the chart does not set it: with server-side
// apply, as in Helm 4, and with a three-way merge, as in Helm 3.
func (s *scene) testUpgradeLeavesThePublishedCA() {
	recorder, err := controlplane.RecordVersions(s.ctx, s.AdminConfig(),
		admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"))
	s.Expect(err).NotTo(HaveOccurred())

	for i, flags := range [][]string{{"--take-ownership"}, {}, {"--server-side=false"}} {
		seconds := 3 + i
		values := filepath.Join(s.dir, "values.yaml")
		raw, err := json.Marshal(map[string]any{
			"deployment": map[string]any{"enabled": i == 1}, "certificates": map[string]any{"mode": "self"},
			"webhooks": map[string]any{"url": s.WebhookURL, "timeoutSeconds": seconds},
		})
		s.Expect(err).NotTo(HaveOccurred())
		s.Expect(os.WriteFile(values, raw, 0o600)).To(Succeed())
		args := append([]string{"upgrade", "--install", "heirloom", filepath.Join(root, "deploy", "chart", "heirloom"),
			"--namespace", stage.Namespace, "--values", values}, flags...)
		_, _, err = controlplane.Helm(s.ctx, s.adminKubeconfig(), args...)
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

// timeoutOfMachines returns the timeout of the webhook for Machines in the last recorded version.
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
