// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

var secretKey = types.NamespacedName{Namespace: "heirloom-system", Name: "heirloom-webhook-authority"}

// issue returns the data of a Secret as cert-controller makes it.
func issue(t *testing.T, from, until time.Time, hosts ...string) map[string][]byte {
	t.Helper()
	r := rotator.CertRotator{CAName: "ca", DNSName: hosts[0], ExtraDNSNames: hosts[1:]}
	r.ExtKeyUsages = &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	ca, err := r.CreateCACert(from, until)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	certificate, key, err := r.CreateCertPEM(ca, from, until)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": ca.CertPEM, "ca.key": ca.KeyPEM}
}

func write(t *testing.T, dir string, data map[string][]byte) {
	t.Helper()
	for _, name := range []string{"tls.crt", "tls.key"} {
		NewWithT(t).Expect(os.WriteFile(filepath.Join(dir, name), data[name], 0o600)).To(Succeed())
	}
}

func TestACertificateFromFiles(t *testing.T) {
	Expect := NewWithT(t).Expect
	dir, now := t.TempDir(), time.Now()
	_, err := FromFiles(dir)
	Expect(err).To(MatchError(ContainSubstring("loading the serving certificate: open ")))

	good := issue(t, now.Add(-time.Hour), now.Add(time.Hour), "localhost")
	write(t, dir, good)
	watcher, err := FromFiles(dir)
	Expect(err).NotTo(HaveOccurred())
	source := Source(watcher.GetCertificate)
	until, loaded := source.NotAfter()
	Expect(loaded).To(BeTrue())
	Expect(until).To(BeTemporally("~", now.Add(time.Hour), time.Second))
	Expect(source.Check(nil)).To(Succeed())

	// Check tests the served certificate: files that cannot be loaded change nothing, other files are loaded.
	write(t, dir, map[string][]byte{"tls.crt": good["tls.crt"], "tls.key": []byte("broken")})
	Expect(watcher.ReadCertificate()).NotTo(Succeed())
	Expect(source.Check(nil)).To(Succeed())
	for _, invalid := range []map[string][]byte{
		issue(t, now.Add(-time.Hour), now.Add(-time.Minute), "localhost"), issue(t, now.Add(time.Minute), now.Add(time.Hour), "localhost"),
	} {
		write(t, dir, invalid)
		Expect(watcher.ReadCertificate()).To(Succeed())
		Expect(source.Check(nil)).To(MatchError(ContainSubstring("the serving certificate is valid only from ")))
	}
}

// cached is a cache that reads from an API server.
type cached struct {
	cache.Cache
	client client.Client
}

func (c cached) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return c.client.Get(ctx, key, into, options...)
}

// newOwn returns an Own for a management cluster with these objects. If refused is not nil, the API server refuses creates with this error.
func newOwn(t *testing.T, refused error, objects ...client.Object) *Own {
	t.Helper()
	server := fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if refused != nil {
				return refused
			}
			return c.Create(ctx, object, options...)
		},
	}).Build()
	return &Own{
		Secret: secretKey, Configuration: "heirloom", Hosts: []string{"a.svc", "a.svc.cluster.local"}, Dir: filepath.Join(t.TempDir(), "certs"),
		client: server, cache: cached{client: server},
	}
}

func secretWith(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretKey.Namespace, Name: secretKey.Name}, Data: data}
}

func TestCertificateOfTheSecretIsServed(t *testing.T) {
	Expect := NewWithT(t).Expect
	own := newOwn(t, nil)
	reconcile := func() *corev1.Secret {
		t.Helper()
		Expect(own.Reconcile(t.Context(), ctrl.Request{})).Error().To(Succeed())
		secret := &corev1.Secret{}
		Expect(own.client.Get(t.Context(), secretKey, secret)).To(Succeed())
		return secret
	}
	made := reconcile()
	Expect(made.Type).To(Equal(corev1.SecretTypeTLS))
	Expect(made.Data).To(And(HaveKey("tls.crt"), HaveKey("tls.key")), "an API server requires them for this type")
	reconcile()
	source := Source(own.Source)
	Expect(source.Check(nil)).To(MatchError("there is no serving certificate yet"))
	_, loaded := source.NotAfter()
	Expect(loaded).To(BeFalse())

	now := time.Now()
	made.Data = issue(t, now.Add(-time.Hour), now.Add(time.Hour), own.Hosts...)
	Expect(own.client.Update(t.Context(), made)).To(Succeed())
	reconcile()
	Expect(source.Check(nil)).To(Succeed())
	served, err := tls.X509KeyPair(made.Data["tls.crt"], made.Data["tls.key"])
	Expect(err).NotTo(HaveOccurred())
	Expect(own.Source(nil)).To(Equal(&served))
	Expect(os.ReadFile(filepath.Join(own.Dir, "tls.crt"))).To(Equal(made.Data["tls.crt"]), "cert-controller waits for it")
	Expect(filepath.Join(own.Dir, "tls.key")).NotTo(BeAnExistingFile())

	made.Data["tls.key"] = []byte("broken")
	Expect(own.client.Update(t.Context(), made)).To(Succeed())
	reconcile()
	Expect(own.Source(nil)).To(Equal(&served), "valid until cert-controller has replaced the certificate")
	Expect(own.client.Delete(t.Context(), made)).To(Succeed())
	Expect(reconcile().Data).To(HaveLen(2), "cert-controller makes a new certificate")
	Expect(own.Source(nil)).To(Equal(&served))
}

func TestMissingSecretIsReported(t *testing.T) {
	own := newOwn(t, errors.New("forbidden"))
	NewWithT(t).Expect(own.Reconcile(t.Context(), ctrl.Request{})).Error().To(MatchError("creating the Secret of the serving certificate: forbidden"))
	_, _, err := own.hosts(t.Context(), own.client)
	NewWithT(t).Expect(err).To(MatchError("creating the Secret of the serving certificate: forbidden"))
	own = newOwn(t, nil, secretWith(map[string][]byte{"tls.crt": []byte("x")}))
	own.Dir = "/dev/null/certs"
	NewWithT(t).Expect(own.Reconcile(t.Context(), ctrl.Request{})).Error().To(Succeed(), "no write before there is a certificate")
	now := time.Now()
	own = newOwn(t, nil, secretWith(issue(t, now.Add(-time.Hour), now.Add(time.Hour), "a.svc")))
	own.Dir = "/dev/null/certs"
	NewWithT(t).Expect(own.Reconcile(t.Context(), ctrl.Request{})).Error().To(MatchError(ContainSubstring("writing the serving certificate for cert-controller")))
}

// cert-controller makes a new certificate if the first of our hosts is missing, and checks no other host.
func TestCertificateWithoutAHostIsReplaced(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name, first string
		has         []string
		others      []string
	}{
		{name: "there is none", first: "a.svc", others: []string{"a.svc.cluster.local"}},
		{name: "it has all", has: []string{"a.svc.cluster.local", "a.svc"}, first: "a.svc", others: []string{"a.svc.cluster.local"}},
		{name: "it lacks one", has: []string{"a.svc"}, first: "a.svc.cluster.local", others: []string{"a.svc"}},
		{
			name: "it has one of a replica that is about to be replaced", has: []string{"a.svc", "old.example.com"},
			first: "a.svc.cluster.local", others: []string{"a.svc", "old.example.com"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			own := newOwn(t, nil)
			var data map[string][]byte
			if tc.has != nil {
				data = issue(t, now.Add(-time.Hour), now.Add(time.Hour), tc.has...)
				own = newOwn(t, nil, secretWith(data))
			}
			first, others, err := own.hosts(t.Context(), own.client)
			Expect(err).NotTo(HaveOccurred())
			Expect(first).To(Equal(tc.first))
			Expect(others).To(Equal(tc.others))
			valid, _ := rotator.ValidCert(data["ca.crt"], data["tls.crt"], data["tls.key"], first, nil, now)
			Expect(valid).To(Equal(tc.name == "it has all"))
		})
	}
}

// cert-controller sees only our own objects through the manager's configuration, whatever it requests.
func TestCertControllerSeesNothingElse(t *testing.T) {
	Expect := NewWithT(t).Expect
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = append(asked, r.URL.String()) }))
	defer server.Close()
	config := confined{managed{config: &rest.Config{Host: server.URL}}, &Own{Secret: secretKey, Configuration: "heirloom"}}.GetConfig()
	asker, err := rest.HTTPClientFor(config)
	Expect(err).NotTo(HaveOccurred())
	for _, path := range []string{
		"/api/v1/namespaces/heirloom-system/secrets?limit=500", "/api/v1/namespaces/heirloom-system/secrets?watch=true&fieldSelector=",
		"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
	} {
		response, err := asker.Get(server.URL + path)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Body.Close()).To(Succeed())
	}
	Expect(asked).To(Equal([]string{
		"/api/v1/namespaces/heirloom-system/secrets?fieldSelector=metadata.name%3Dheirloom-webhook-authority&limit=500",
		"/api/v1/namespaces/heirloom-system/secrets?fieldSelector=metadata.name%3Dheirloom-webhook-authority&watch=true",
		"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?fieldSelector=metadata.name%3Dheirloom",
		"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?fieldSelector=metadata.name%3Dheirloom",
	}))
}

type managed struct {
	ctrl.Manager
	config *rest.Config
	client client.Client
	added  *[]manager.Runnable
}

func (m managed) Add(runnable manager.Runnable) error {
	*m.added = append(*m.added, runnable)
	return nil
}

func (m managed) GetConfig() *rest.Config  { return m.config }
func (m managed) GetClient() client.Client { return m.client }

func TestCertManagersConfigurationIsNotFoughtOver(t *testing.T) {
	Expect := NewWithT(t).Expect
	theirs := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: "heirloom", Annotations: map[string]string{"cert-manager.io/inject-ca-from": "heirloom-system/heirloom-webhook"},
	}}
	ours := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "heirloom"}}
	server := fake.NewClientBuilder().WithObjects(theirs, ours).Build()
	writer := confined{managed{client: server}, &Own{}}.GetClient()
	Expect(writer.Update(t.Context(), theirs)).To(MatchError(And(
		ContainSubstring("cert-manager injects the CA into webhook configuration heirloom (annotation cert-manager.io/inject-ca-from=heirloom-system/heirloom-webhook"),
		ContainSubstring("remove the annotation"))))
	Expect(writer.Update(t.Context(), ours)).To(Succeed())
}

// The loop needs no certificate, so the program goes on if cert-controller fails, and tries to recover.
func TestTheProgramOutlivesCertController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		own, added := newOwn(t, nil), []manager.Runnable{}
		failing := &rotator.CertRotator{} // it has no client to read with
		Expect(failing.Start(t.Context())).To(HaveOccurred())
		Expect(confined{managed{added: &added}, own}.Add(failing)).To(Succeed())
		Expect(added).To(HaveLen(1))
		Expect(added[0].(manager.LeaderElectionRunnable).NeedLeaderElection()).To(BeFalse())

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- added[0].Start(ctx) }()
		synctest.Wait()
		Expect(ended).NotTo(Receive())
		Expect(own.client.Get(t.Context(), secretKey, &corev1.Secret{})).To(Succeed(), "the Secret is created again")
		cancel()
		Expect(<-ended).To(Succeed())
	})
}
