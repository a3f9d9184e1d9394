// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// tempo is the time between two requests while certificates are replaced.
const tempo = 100 * time.Millisecond

// With the chart's defaults, cert-manager renews the serving certificate and the CA while no call fails and no object is stored without
// the entries that it inherits. The test runs cert-manager's own controllers, and mounts a new version of the Secret late, like a kubelet.
func TestCertManagerRenewsUnderWrites(t *testing.T) {
	t.Parallel()
	manager := buildCertManager(t)
	certManager, err := controlplane.CertManagerCRDs()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	mounted := &volume{dir: t.TempDir()}
	s := newScene(t, stage.Options{Args: []string{"--webhook-cert-dir=" + mounted.dir}, WithoutProgram: true, WithoutWebhooks: true})
	s.Expect(s.InstallCRDs(s.ctx, certManager)).To(Succeed())
	s.startCertManager(manager)
	s.installWithCertManager()
	s.show(mounted)
	s.Expect(s.StartHeirloom(s.ctx)).To(Succeed())
	s.eventuallyPublishesOneCA()
	s.inheritsInTheWrite("before")
	first, err := s.publishedBundle(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())

	stream := s.startStream(s.settle("stream", declared()))
	stream.serves(1)
	s.renew("heirloom-webhook", "heirloom-webhook-cert")
	stream.serves(1)
	s.show(mounted)
	stream.serves(2)
	s.Expect(s.publishedBundle(s.ctx)).To(Equal(first), "the CA stays")

	s.renew("heirloom-webhook-ca", "heirloom-webhook-ca")
	stream.serves(2)
	s.renew("heirloom-webhook", "heirloom-webhook-cert")
	stream.serves(2)
	s.show(mounted)
	stream.serves(3)
	second, err := s.publishedBundle(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(keysOf(t, second)).To(And(HaveLen(2), HaveEach(keysOf(t, first)[0])), "the second certificate of the CA has the same key as the first")
	stream.end()
}

// stream makes requests while certificates are replaced. It creates a MachineSet, which fails if no webhook answers and must return the
// inherited entries. An API server keeps its connections, so the stream also reads the served certificate on a new connection.
type stream struct {
	s     *scene
	end   func()
	mu    sync.Mutex
	wrong []error
	// rounds is the number of rounds without an error, and leaves are the certificates that were served.
	rounds int
	leaves sets.Set[string]
}

func (s *scene) startStream(f family) *stream {
	ctx, stop := context.WithCancel(s.ctx)
	r, done := &stream{s: s, leaves: sets.New[string]()}, make(chan struct{})
	r.end = sync.OnceFunc(func() { stop(); <-done })
	s.t.Cleanup(r.end)
	published, err := s.publishedBundle(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	go func() {
		defer close(done)
		wait.UntilWithContext(ctx, func(context.Context) { // no round is cancelled
			leaf, err := s.round(f, published)
			next, failed := s.publishedBundle(s.ctx) // for the next round: an API server reads a new bundle late
			published = next
			r.note(leaf, errors.Join(err, failed))
		}, tempo)
	}()
	return r
}

// round creates a MachineSet (dry run) and returns the serial number of the served certificate, which a client with the CA bundle trusts.
func (s *scene) round(f family, bundle []byte) (leaf string, err error) {
	ms := stage.MachineSet(f.md, "in-stream")
	if err := s.Client.Create(s.ctx, ms, client.DryRunAll); err != nil {
		return "", err
	}
	if ms.Spec.Template.Labels["team"] != "ml" {
		return "", errors.New("a MachineSet would be stored without what it inherits")
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	connection, err := (&tls.Dialer{Config: &tls.Config{RootCAs: pool}}).DialContext(s.ctx, "tcp", strings.TrimPrefix(s.WebhookURL, "https://"))
	if err != nil {
		return "", err
	}
	leaf = connection.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
	return leaf, connection.Close()
}

func (r *stream) note(leaf string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.wrong = append(r.wrong, err)
		return
	}
	r.leaves.Insert(leaf)
	r.rounds++
}

// serves waits until this number of certificates has been served, and then for ten rounds. No round may fail.
func (r *stream) serves(certificates int) {
	r.s.t.Helper()
	since := -1
	r.s.Eventually(func(g Gomega) {
		r.mu.Lock()
		defer r.mu.Unlock()
		g.Expect(r.wrong).To(BeEmpty())
		g.Expect(r.leaves).To(HaveLen(certificates))
		if since < 0 {
			since = r.rounds
		}
		g.Expect(r.rounds).To(BeNumerically(">=", since+10))
	}).WithTimeout(2 * patience).WithPolling(tempo).Should(Succeed())
}

// volume is the mount of a Secret by a kubelet: each file is a link through the link ..data to a directory for the
// version of the Secret, and one change of ..data changes all files.
type volume struct {
	dir     string
	version int
}

// show updates the volume to the current version of the Secret, like a kubelet.
func (s *scene) show(v *volume) {
	s.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: stage.Namespace, Name: "heirloom-webhook-cert"}}
	s.eventually(secret, func(g Gomega) { g.Expect(secret.Data).To(HaveKey("tls.crt")) })
	v.version++
	name := fmt.Sprintf("..version-%d", v.version)
	s.Expect(os.Mkdir(filepath.Join(v.dir, name), 0o700)).To(Succeed())
	for file, content := range secret.Data {
		s.Expect(os.WriteFile(filepath.Join(v.dir, name, file), content, 0o600)).To(Succeed())
		if v.version == 1 {
			s.Expect(os.Symlink(filepath.Join("..data", file), filepath.Join(v.dir, file))).To(Succeed())
		}
	}
	s.Expect(os.Symlink(name, filepath.Join(v.dir, "..data_tmp"))).To(Succeed())
	s.Expect(os.Rename(filepath.Join(v.dir, "..data_tmp"), filepath.Join(v.dir, "..data"))).To(Succeed())
	s.Expect(os.RemoveAll(filepath.Join(v.dir, fmt.Sprintf("..version-%d", v.version-1)))).To(Succeed())
}

// buildCertManager builds cert-manager's controllers, which are not a dependency of Heirloom.
func buildCertManager(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cert-manager")
	build := exec.CommandContext(t.Context(), "go", "-C", filepath.Join(root, "hack", "tools", "dev"), "build", "-trimpath", "-gcflags=all=-dwarf=false", "-o", path, "./cert-manager")
	out, err := build.CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), string(out))
	return path
}

func (s *scene) startCertManager(path string) {
	s.t.Helper()
	kubeconfig, log := filepath.Join(s.dir, "cert-manager.kubeconfig"), filepath.Join(s.dir, "cert-manager.log")
	s.Expect(s.WriteKubeconfig(kubeconfig, "cert-manager", "system:masters")).To(Succeed())
	process, err := controlplane.StartProcess(s.ctx, path, []string{"--kubeconfig=" + kubeconfig}, log)
	s.Expect(err).NotTo(HaveOccurred())
	s.t.Cleanup(func() {
		s.Expect(process.Stop()).To(Succeed())
		if s.t.Failed() {
			showLog(s.t, tailOf(log).fromStart())
		}
	})
}

// installWithCertManager applies the objects of the default chart that concern certificates. The program is outside of the
// cluster: the API server calls it by its address, and the Certificate is also valid for this address.
func (s *scene) installWithCertManager() {
	s.t.Helper()
	var certificates, configurations []unstructured.Unstructured
	for _, object := range render(s.t, nil) {
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

// eventuallyIssued waits until cert-manager has issued these Certificates. While its cache lacks the Secret of a new Certificate, it
// issues the Certificate again at once, and would publish both certificates, one after the other.
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
		g.Expect(requests.Items).To(HaveLen(len(names)), "the requests of earlier revisions are gone")
	}).WithTimeout(patience).WithPolling(tempo).Should(Succeed())
}

// certManagerClient returns a client of an administrator for cert-manager's kinds.
func (s *scene) certManagerClient() client.Client {
	s.t.Helper()
	scheme := runtime.NewScheme()
	s.Expect(cmapi.AddToScheme(scheme)).To(Succeed())
	c, err := client.New(s.AdminConfig(), client.Options{Scheme: scheme})
	s.Expect(err).NotTo(HaveOccurred())
	return c
}

// callByURL replaces the Service in the webhooks with the program's address, and makes them fail closed.
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
		fields["failurePolicy"], fields["timeoutSeconds"] = "Fail", int64(30) // so that a write without a review fails
	}
	s.Expect(unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks")).To(Succeed())
}

// renew renews a certificate like "cmctl renew", and waits until the Secret has the new certificate.
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

// keysOf returns the key identifiers of the CAs in a bundle.
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

// publishedBundle returns the CA bundle of the mutating webhooks, which must be the same in all of them.
func (s *scene) publishedBundle(ctx context.Context) ([]byte, error) {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := s.Client.Get(ctx, types.NamespacedName{Name: "heirloom"}, mutating); err != nil {
		return nil, err
	}
	for _, webhook := range mutating.Webhooks {
		if !bytes.Equal(webhook.ClientConfig.CABundle, mutating.Webhooks[0].ClientConfig.CABundle) || len(webhook.ClientConfig.CABundle) == 0 {
			return nil, fmt.Errorf("the webhook %s has another CA bundle, or none", webhook.Name)
		}
	}
	return mutating.Webhooks[0].ClientConfig.CABundle, nil
}

// eventuallyPublishesOneCA waits until all webhooks have the same bundle, with one CA.
func (s *scene) eventuallyPublishesOneCA() {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		bundle, err := s.publishedBundle(s.ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(bytes.Count(bundle, []byte("BEGIN CERTIFICATE"))).To(Equal(1))
		validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		g.Expect(s.Client.Get(s.ctx, types.NamespacedName{Name: "heirloom"}, validating)).To(Succeed())
		for _, webhook := range validating.Webhooks {
			g.Expect(webhook.ClientConfig.CABundle).To(Equal(bundle), webhook.Name)
		}
	}).WithTimeout(2 * patience).WithPolling(tempo).Should(Succeed())
}
