// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/cert"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// authority is the Secret with the certificate that Heirloom makes itself.
var authority = types.NamespacedName{Namespace: stage.Namespace, Name: "heirloom-webhook-authority"}

func ownCertificate(hosts ...string) []string {
	return []string{"--webhook-cert-secret=" + authority.String(), "--webhook-cert-dns-names=" + strings.Join(hosts, ",")}
}

// Without cert-manager, a fresh installation becomes ready. If the Secret with its certificate is deleted, the program makes it anew, and the
// API server trusts it. The tests of package certs show that all replicas serve the certificate in the Secret.
func TestOwnCertificates(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{
		FailClosed: true, Host: "localhost", Args: ownCertificate("localhost"),
		Values: map[string]any{"certificates": map[string]any{"mode": "self"}},
	})
	s.eventuallyPublishesOneCA()
	s.eventuallyAnswers("before")
	first, err := s.publishedBundle()
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(s.Client.Delete(s.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: authority.Namespace, Name: authority.Name}})).To(Succeed())
	s.Eventually(s.publishedBundle).WithTimeout(patience).ShouldNot(Equal(first))
	s.eventuallyPublishesOneCA()
	s.eventuallyAnswers("after")
}

// eventuallyAnswers waits until the API server calls the webhooks, and returns a MachineDeployment: the API server uses a new bundle only after
// a moment.
func (s *scene) eventuallyAnswers(name string) *clusterv1.MachineDeployment {
	s.t.Helper()
	s.ensureNamespace(name)
	cluster := stage.Cluster(name, name)
	s.create(cluster)
	md := stage.MachineDeployment(cluster, name, declared())
	s.Eventually(func() error { return s.Client.Create(s.ctx, md) }).WithTimeout(patience).Should(Succeed())
	s.Eventually(func() error { return s.inheritsInTheWrite(md) }).WithTimeout(patience).Should(Succeed())
	return md
}

// inheritsInTheWrite returns why a MachineSet of md would not inherit in the write that creates it. The write fails if no webhook answers.
func (s *scene) inheritsInTheWrite(md *clusterv1.MachineDeployment) error {
	ms := stage.MachineSet(md, "dry-run")
	if err := s.Client.Create(s.ctx, ms, client.DryRunAll); err != nil {
		return err
	}
	if ms.Spec.Template.Labels["team"] != "ml" {
		return errors.New("a MachineSet would be stored without what it inherits")
	}
	return nil
}

// publishedBundle returns the CA bundle of the mutating webhooks, which must be the same in all of them.
func (s *scene) publishedBundle() ([]byte, error) {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := s.Client.Get(s.ctx, types.NamespacedName{Name: "heirloom"}, mutating); err != nil {
		return nil, err
	}
	bundle := mutating.Webhooks[0].ClientConfig.CABundle
	for _, webhook := range mutating.Webhooks {
		if len(bundle) == 0 || !bytes.Equal(webhook.ClientConfig.CABundle, bundle) {
			return nil, fmt.Errorf("the webhook %s has another CA bundle, or none", webhook.Name)
		}
	}
	return bundle, nil
}

// eventuallyPublishesOneCA waits until all webhooks have the same bundle, with one CA.
func (s *scene) eventuallyPublishesOneCA() {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		bundle, err := s.publishedBundle()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(bytes.Count(bundle, []byte("BEGIN CERTIFICATE"))).To(Equal(1))
		validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		g.Expect(s.Client.Get(s.ctx, types.NamespacedName{Name: "heirloom"}, validating)).To(Succeed())
		g.Expect(validating.Webhooks).To(HaveEach(HaveField("ClientConfig.CABundle", bundle)))
	}).WithTimeout(2 * patience).WithPolling(polling).Should(Succeed())
}

// With the chart's defaults, cert-manager renews the serving certificate and the CA while no call fails and no object is stored without
// the entries that it inherits. The test runs cert-manager's own controllers, and mounts a new version of the Secret late, like a kubelet.
func TestCertManagerRenewsUnderWrites(t *testing.T) {
	t.Parallel()
	mounted := t.TempDir()
	r := &renewals{mounted: mounted, leaves: sets.New[string](), scene: newScene(t, stage.Options{
		WithoutProgram: true, WithoutWebhooks: true, Args: []string{"--webhook-cert-dir=" + mounted},
	})}
	r.Expect(cmapi.AddToScheme(r.Client.Scheme())).To(Succeed())
	crds, err := controlplane.CertManagerCRDs()
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.InstallCRDs(r.ctx, crds)).To(Succeed())
	r.startCertManager()
	r.install()
	r.eventuallyIssued("heirloom-webhook-ca", "heirloom-webhook")
	r.mount()
	r.Expect(r.StartHeirloom(r.ctx)).To(Succeed())
	r.eventuallyPublishesOneCA()
	r.md = r.eventuallyAnswers("stream")
	first, err := r.publishedBundle()
	r.Expect(err).NotTo(HaveOccurred())
	r.published = first

	r.serves(1)
	r.renew("heirloom-webhook", "heirloom-webhook-cert")
	r.serves(1)
	r.mount()
	r.serves(2)
	r.Expect(r.publishedBundle()).To(Equal(first), "the CA stays")
	r.renew("heirloom-webhook-ca", "heirloom-webhook-ca")
	r.serves(2)
	r.renew("heirloom-webhook", "heirloom-webhook-cert")
	r.serves(2)
	r.mount()
	r.serves(3)
	second, err := r.publishedBundle()
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(keysOf(t, second)).To(And(HaveLen(2), HaveEach(keysOf(t, first)[0])), "the second certificate of the CA has the same key as the first")
}

// renewals makes writes while certificates are renewed.
type renewals struct {
	*scene
	md *clusterv1.MachineDeployment
	// published is the CA bundle at the end of the last write: an API server reads a new bundle late.
	published []byte
	// mounted is the directory in which the program finds the Secret, and versions counts the mounted versions.
	mounted  string
	versions int
	leaves   sets.Set[string]
}

// writesUntil makes writes until done, at least ten. No write may fail. An API server keeps its connections, so each write also has a new
// connection.
func (r *renewals) writesUntil(done func() bool) {
	r.t.Helper()
	for begin, writes := time.Now(), 0; writes < 10 || !done(); writes++ {
		r.Expect(time.Since(begin)).To(BeNumerically("<", 2*patience))
		r.Expect(r.inheritsInTheWrite(r.md)).To(Succeed())
		leaf, err := r.served()
		r.Expect(err).NotTo(HaveOccurred())
		r.leaves.Insert(leaf.SerialNumber.String())
		r.published, err = r.publishedBundle()
		r.Expect(err).NotTo(HaveOccurred())
	}
}

// served returns the certificate that the program serves on a new connection. A client with the published CA bundle trusts it.
func (r *renewals) served() (*x509.Certificate, error) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(r.published)
	connection, err := (&tls.Dialer{Config: &tls.Config{RootCAs: pool}}).DialContext(r.ctx, "tcp", strings.TrimPrefix(r.WebhookURL, "https://"))
	if err != nil {
		return nil, err
	}
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0], connection.Close() //nolint:forcetypeassert // a dialer of TLS
}

// serves makes writes until this number of certificates has been served.
func (r *renewals) serves(certificates int) {
	r.t.Helper()
	r.writesUntil(func() bool { return r.leaves.Len() == certificates })
	r.writesUntil(func() bool { return true })
	r.Expect(r.leaves.Len()).To(Equal(certificates))
}

// mount mounts the current version of the Secret, like a kubelet: each file is a link through the link ..data to a directory for the version,
// and one change of ..data changes all files.
func (r *renewals) mount() {
	r.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: stage.Namespace, Name: "heirloom-webhook-cert"}}
	r.get(secret)
	r.versions++
	version := fmt.Sprint("..version-", r.versions)
	r.Expect(os.Mkdir(filepath.Join(r.mounted, version), 0o700)).To(Succeed())
	for file, content := range secret.Data {
		r.Expect(os.WriteFile(filepath.Join(r.mounted, version, file), content, 0o600)).To(Succeed())
		if r.versions == 1 {
			r.Expect(os.Symlink(filepath.Join("..data", file), filepath.Join(r.mounted, file))).To(Succeed())
		}
	}
	r.Expect(os.Symlink(version, filepath.Join(r.mounted, "..data_tmp"))).To(Succeed())
	r.Expect(os.Rename(filepath.Join(r.mounted, "..data_tmp"), filepath.Join(r.mounted, "..data"))).To(Succeed())
}

// startCertManager builds and starts cert-manager's controllers, which are not a dependency of Heirloom.
func (r *renewals) startCertManager() {
	r.t.Helper()
	path, kubeconfig, log := filepath.Join(r.dir, "cert-manager"), filepath.Join(r.dir, "cert-manager.kubeconfig"), filepath.Join(r.dir, "cert-manager.log")
	out, err := exec.CommandContext(r.ctx, "go", "-C", filepath.Join(root, "hack", "tools", "dev"),
		"build", "-trimpath", "-gcflags=all=-dwarf=false", "-o", path, "./cert-manager").CombinedOutput()
	r.Expect(err).NotTo(HaveOccurred(), string(out))
	r.Expect(r.WriteKubeconfig(kubeconfig, "cert-manager", "system:masters")).To(Succeed())
	process, err := controlplane.StartProcess(r.ctx, path, []string{"--kubeconfig=" + kubeconfig}, log)
	r.Expect(err).NotTo(HaveOccurred())
	r.t.Cleanup(func() {
		r.Expect(process.Stop()).To(Succeed())
		if r.t.Failed() {
			showLog(r.t, tailOf(log).fromStart())
		}
	})
}

// install applies the objects of the default chart that concern certificates. The program is outside of the cluster: the API server calls it by
// its address, for which the Certificate is also valid, and refuses a write without an answer.
func (r *renewals) install() {
	r.t.Helper()
	for _, object := range render(r.t, nil) {
		switch object.GetKind() {
		case "Certificate":
			r.Expect(unstructured.SetNestedStringSlice(object.Object, []string{"127.0.0.1"}, "spec", "ipAddresses")).To(Succeed())
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			for _, webhook := range object.Object["webhooks"].([]any) { //nolint:forcetypeassert // rendered by the chart
				webhook := webhook.(map[string]any) //nolint:forcetypeassert // the same
				path, _, err := unstructured.NestedString(webhook, "clientConfig", "service", "path")
				r.Expect(err).NotTo(HaveOccurred())
				webhook["clientConfig"] = map[string]any{"url": r.WebhookURL + path}
				webhook["failurePolicy"], webhook["timeoutSeconds"] = "Fail", int64(30)
			}
		case "Issuer":
		default:
			continue
		}
		r.create(&object)
	}
}

// eventuallyIssued waits until cert-manager has issued these Certificates. While its cache lacks the Secret of a new Certificate, it
// issues the Certificate again at once, and would publish both certificates, one after the other.
func (r *renewals) eventuallyIssued(names ...string) {
	r.t.Helper()
	r.Eventually(func(g Gomega) {
		for _, name := range names {
			object := &cmapi.Certificate{}
			g.Expect(r.Client.Get(r.ctx, types.NamespacedName{Namespace: stage.Namespace, Name: name}, object)).To(Succeed())
			g.Expect(object.Status.Conditions).To(ConsistOf(And(
				HaveField("Type", cmapi.CertificateConditionReady), HaveField("Status", cmmeta.ConditionTrue))), name)
		}
		requests := &cmapi.CertificateRequestList{}
		g.Expect(r.Client.List(r.ctx, requests, client.InNamespace(stage.Namespace))).To(Succeed())
		g.Expect(requests.Items).To(HaveLen(len(names)), "the requests of earlier revisions are gone")
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}

// renew renews a certificate like "cmctl renew", and makes writes until the Secret has the new certificate.
func (r *renewals) renew(certificate, secret string) {
	r.t.Helper()
	read := func() []byte {
		object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: stage.Namespace, Name: secret}}
		r.get(object)
		return object.Data[corev1.TLSCertKey]
	}
	before := read()
	r.Eventually(func(g Gomega) {
		object, now := &cmapi.Certificate{}, metav1.Now()
		g.Expect(r.Client.Get(r.ctx, types.NamespacedName{Namespace: stage.Namespace, Name: certificate}, object)).To(Succeed())
		object.Status.Conditions = append(object.Status.Conditions, cmapi.CertificateCondition{
			Type: cmapi.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: "ManuallyTriggered",
			LastTransitionTime: &now, ObservedGeneration: object.Generation,
		})
		g.Expect(r.Client.Status().Update(r.ctx, object)).To(Succeed())
	}).WithTimeout(patience).Should(Succeed())
	r.writesUntil(func() bool { return !bytes.Equal(read(), before) })
}

// keysOf returns the key identifiers of the CAs in a bundle.
func keysOf(t *testing.T, bundle []byte) []string {
	t.Helper()
	certificates, err := cert.ParseCertsPEM(bundle)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var keys []string
	for _, certificate := range certificates {
		keys = append(keys, fmt.Sprintf("%x", certificate.SubjectKeyId))
	}
	return keys
}
