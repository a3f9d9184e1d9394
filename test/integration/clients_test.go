// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// An API server can prove by a client certificate who it is. Its objects inherit, and nobody else is answered.
func TestAnAPIServerProvesWhoItIs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeClient(t, dir, "api-server")
	s := newScene(t, stage.Options{
		WithoutLoop:  true,
		Args:         []string{"--webhook-client-ca-file=" + filepath.Join(dir, "ca.crt"), "--webhook-client-names=api-server"},
		ControlPlane: controlplane.Options{APIServerArgs: map[string][]string{"admission-control-config-file": {filepath.Join(dir, "admission.yaml")}}},
	})
	s.inheritsInTheWrite("proved")

	f := s.settle("asked", declared())
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := insecure.Post(s.WebhookURL+"/mutate/machines", "application/json", bytes.NewReader(s.reviewOf(f.m)))
	s.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	s.Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
	s.expectSample(`heirloom_admission_requests_rejected_total{reason="unauthenticated",server="management"}`, 1)
}

// What is turned away passes untouched: here the requests of an API server that has no certificate.
func TestWhatIsTurnedAwayPassesUntouched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeClient(t, dir, "api-server")
	s := newScene(t, stage.Options{WithoutLoop: true, Args: []string{"--webhook-client-ca-file=" + filepath.Join(dir, "ca.crt")}})
	f := s.settle("untouched", declared())
	ms := stage.MachineSet(f.md, "another")
	s.Expect(s.Client.Create(s.ctx, ms, client.DryRunAll)).To(Succeed())
	s.Expect(ms.Spec.Template.Labels).NotTo(HaveKey("team"))
	s.expectSample(`heirloom_admission_requests_rejected_total{reason="unauthenticated",server="management"}`, 3)
}

// writeClient writes ca.crt, a client's certificate by that CA, and admission.yaml for an API server that is this client.
func writeClient(t *testing.T, dir, name string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	issue := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		Expect(err).NotTo(HaveOccurred())
		if parent == nil {
			parent, signer = template, key
		}
		template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		Expect(err).NotTo(HaveOccurred())
		certificate, err := x509.ParseCertificate(der)
		Expect(err).NotTo(HaveOccurred())
		return certificate, key
	}
	ca, caKey := issue(&x509.Certificate{Subject: pkix.Name{CommonName: "clients"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	certificate, key := issue(&x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca, caKey)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	Expect(err).NotTo(HaveOccurred())
	file := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, content []byte) { Expect(os.WriteFile(file(name), content, 0o600)).To(Succeed()) }
	write("ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}))
	write("tls.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
	write("tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	write("kubeconfig", []byte("apiVersion: v1\nkind: Config\nusers:\n- name: '*'\n  user:\n    client-certificate: "+file("tls.crt")+"\n    client-key: "+file("tls.key")+"\n"))
	plugin := func(name string) string {
		return "- name: " + name + "\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: " + file("kubeconfig") + "}\n"
	}
	write("admission.yaml", []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"+
		plugin("MutatingAdmissionWebhook")+plugin("ValidatingAdmissionWebhook")))
}
