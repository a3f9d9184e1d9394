// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/hex"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// late is how long the kubelet takes to show a new version of a Secret. Real ones take up to a minute.
const late = 3 * time.Second

// What the chart installs by default lets cert-manager renew serving certificate and CA, in any order, without a call that
// fails or an object that is stored without what it inherits. cert-manager's own controllers do it here.
func TestCertManagerRenewsUnderWrites(t *testing.T) {
	t.Parallel()
	manager := buildCertManager(t)
	for _, tc := range []struct {
		name  string
		gates string
		// bundle is how many certificates of the CA are published when it has been renewed.
		bundle int
	}{
		{name: "as it is by default, since v1.19: what was published before stays", bundle: 2},
		{name: "as it was before: what was published is replaced", gates: "CAInjectorMerging=false", bundle: 1},
	} {
		t.Run(tc.name, func(t *testing.T) { testRenewals(t, manager, "--feature-gates="+tc.gates, tc.bundle) })
	}
}

func testRenewals(t *testing.T, manager, gates string, bundle int) {
	certManager, err := controlplane.CertManagerCRDs()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	dir := t.TempDir()
	s := newScene(t, stage.Options{
		Args: []string{"--webhook-cert-dir=" + dir}, WithoutProgram: true, WithoutWebhooks: true,
	})
	s.Expect(s.InstallCRDs(s.ctx, certManager)).To(Succeed())
	s.startCertManager(manager, gates)
	s.installWithCertManager()
	mounted, unmount := s.mount(types.NamespacedName{Namespace: stage.Namespace, Name: "heirloom-webhook-cert"}, dir, late)
	t.Cleanup(unmount)
	s.Expect(s.StartHeirloom(s.ctx)).To(Succeed())
	s.eventuallyPublishesOneCA()
	s.inheritsInTheWrite("before")

	stream := s.startStream("stream", s.settle("streams", declared()), server{s.WebhookURL, s.HealthURL})
	served := func(leaves int) {
		t.Helper()
		s.Eventually(func(g Gomega) {
			g.Expect(stream.seen()).To(Equal(leaves))
			g.Expect(stream.failed()).To(BeEmpty())
		}).WithTimeout(2 * patience).WithPolling(tempo).Should(Succeed())
	}
	served(1)
	first, err := s.publishedBundle(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())

	s.renew("heirloom-webhook", "heirloom-webhook-cert")
	served(2)
	s.Expect(s.publishedBundle(s.ctx)).To(Equal(first), "the CA stays")

	s.renew("heirloom-webhook-ca", "heirloom-webhook-ca")
	s.renew("heirloom-webhook", "heirloom-webhook-cert")
	served(3)
	second, err := s.publishedBundle(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(second).NotTo(Equal(first), "another certificate of the CA")
	s.Expect(keysOf(t, second)).To(And(HaveLen(bundle), HaveEach(keysOf(t, first)[0])), "with the same key")

	unmount()
	s.Expect(mounted.write(map[string][]byte{"tls.crt": []byte("broken"), "tls.key": []byte("broken")})).To(Succeed())
	s.Eventually(s.unreadable).WithTimeout(patience).Should(BeTrue(), "the broken file was noticed")
	s.Eventually(stream.count).WithTimeout(patience).Should(BeNumerically(">", stream.count()+20), "what was loaded before is served")
	served(3)
	stream.end()
}

// buildCertManager builds cert-manager's controllers, which are no dependency of ours.
func buildCertManager(t *testing.T) string {
	t.Helper()
	root, err := controlplane.RepositoryRoot(t.Context())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(t.TempDir(), "cert-manager")
	build := exec.CommandContext(t.Context(), "go", "-C", filepath.Join(root, "hack", "tools", "dev"), "build", "-trimpath", "-gcflags=all=-dwarf=false", "-o", path, "./cert-manager")
	out, err := build.CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), string(out))
	return path
}

func (s *scene) startCertManager(path, gates string) {
	s.t.Helper()
	kubeconfig, log := filepath.Join(s.dir, "cert-manager.kubeconfig"), filepath.Join(s.dir, "cert-manager.log")
	s.Expect(s.WriteKubeconfig(kubeconfig, "cert-manager", "system:masters")).To(Succeed())
	process, err := controlplane.StartProcess(s.ctx, path, []string{"--kubeconfig=" + kubeconfig, gates}, log)
	s.Expect(err).NotTo(HaveOccurred())
	s.t.Cleanup(func() {
		s.Expect(process.Stop()).To(Succeed())
		if s.t.Failed() {
			showLog(s.t, tailOf(log).fromStart())
		}
	})
}

// installWithCertManager applies what of the default chart has to do with certificates. The program is outside of the
// cluster: the API server calls it by its address, for which the Certificate is, too.
func (s *scene) installWithCertManager() {
	s.t.Helper()
	root, err := controlplane.RepositoryRoot(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	rendered, err := controlplane.RenderChart(s.ctx, filepath.Join(root, "deploy", "chart", "heirloom"), controlplane.ChartOptions{Namespace: stage.Namespace})
	s.Expect(err).NotTo(HaveOccurred())
	var certificates, configurations []unstructured.Unstructured
	for _, object := range rendered {
		switch object.GetKind() {
		case "Issuer":
			certificates = append(certificates, object)
		case "Certificate":
			if object.GetName() == "heirloom-webhook" {
				s.Expect(unstructured.SetNestedStringSlice(object.Object, []string{"127.0.0.1"}, "spec", "ipAddresses")).To(Succeed())
			}
			certificates = append(certificates, object)
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			s.callByURL(&object)
			configurations = append(configurations, object)
		}
	}
	s.Expect(certificates).To(HaveLen(4))
	s.Expect(configurations).To(HaveLen(2))
	s.Expect(controlplane.Apply(s.ctx, s.Client, certificates)).To(Succeed())
	s.eventuallyIssued("heirloom-webhook-ca", "heirloom-webhook")
	s.Expect(controlplane.Apply(s.ctx, s.Client, configurations)).To(Succeed())
}

// eventuallyIssued waits until cert-manager is done with these Certificates. As long as its cache does not have the Secret of a
// new one, it issues that anew at once, and would publish both one after the other.
func (s *scene) eventuallyIssued(names ...string) {
	s.t.Helper()
	c := s.certManagerClient()
	s.Eventually(func(g Gomega) {
		for _, name := range names {
			object := &cmapi.Certificate{}
			g.Expect(c.Get(s.ctx, types.NamespacedName{Namespace: stage.Namespace, Name: name}, object)).To(Succeed())
			g.Expect(object.Status.Conditions).To(ConsistOf(And(
				HaveField("Type", cmapi.CertificateConditionReady), HaveField("Status", cmmeta.ConditionTrue))), name)
		}
		requests := &cmapi.CertificateRequestList{}
		g.Expect(c.List(s.ctx, requests, client.InNamespace(stage.Namespace))).To(Succeed())
		g.Expect(requests.Items).To(HaveLen(len(names)), "those of earlier revisions are gone")
	}).WithTimeout(patience).WithPolling(tempo).Should(Succeed())
}

// certManagerClient is an administrator's client for what cert-manager defines.
func (s *scene) certManagerClient() client.Client {
	s.t.Helper()
	scheme := runtime.NewScheme()
	s.Expect(cmapi.AddToScheme(scheme)).To(Succeed())
	c, err := client.New(s.AdminConfig(), client.Options{Scheme: scheme})
	s.Expect(err).NotTo(HaveOccurred())
	return c
}

// callByURL puts the program's address into the place of its Service.
func (s *scene) callByURL(configuration *unstructured.Unstructured) {
	s.t.Helper()
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	s.Expect(err).NotTo(HaveOccurred())
	for _, webhook := range webhooks {
		fields, ok := webhook.(map[string]any)
		s.Expect(ok).To(BeTrue())
		path, _, err := unstructured.NestedString(fields, "clientConfig", "service", "path")
		s.Expect(err).NotTo(HaveOccurred())
		fields["clientConfig"] = map[string]any{"url": s.WebhookURL + path}
	}
	s.Expect(unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks")).To(Succeed())
}

// renew does what "cmctl renew" does, and waits until the Secret has another certificate.
func (s *scene) renew(certificate, secret string) {
	s.t.Helper()
	read := func() ([]byte, error) {
		object := &corev1.Secret{}
		err := s.Client.Get(s.ctx, types.NamespacedName{Namespace: stage.Namespace, Name: secret}, object)
		return object.Data[corev1.TLSCertKey], err
	}
	before, err := read()
	s.Expect(err).NotTo(HaveOccurred())
	c := s.certManagerClient()
	s.Eventually(func(g Gomega) {
		object := &cmapi.Certificate{}
		g.Expect(c.Get(s.ctx, types.NamespacedName{Namespace: stage.Namespace, Name: certificate}, object)).To(Succeed())
		now := metav1.Now()
		object.Status.Conditions = append(object.Status.Conditions, cmapi.CertificateCondition{
			Type: cmapi.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: "ManuallyTriggered",
			LastTransitionTime: &now, ObservedGeneration: object.Generation,
		})
		g.Expect(c.Status().Update(s.ctx, object)).To(Succeed())
	}).WithTimeout(patience).Should(Succeed())
	s.Eventually(read).WithTimeout(patience).ShouldNot(Equal(before))
}

// keysOf returns what identifies the keys of the CAs in a bundle.
func keysOf(t *testing.T, bundle []byte) []string {
	t.Helper()
	certificates, err := cert.ParseCertsPEM(bundle)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var keys []string
	for _, certificate := range certificates {
		keys = append(keys, hex.EncodeToString(certificate.SubjectKeyId))
	}
	return keys
}

// unreadable reports whether the program has met a certificate that it could not read.
func (s *scene) unreadable() (bool, error) {
	metrics, err := stage.Metrics(s.ctx, s.MetricsURL)
	return strings.Contains(metrics, "certwatcher_read_certificate_errors_total") &&
		!strings.Contains(metrics, "certwatcher_read_certificate_errors_total 0\n"), err
}
