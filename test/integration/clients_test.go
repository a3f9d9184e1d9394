// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// With a trusted client certificate, an API server gets reviews and its objects inherit; a request without it is rejected. A rejected
// object is stored unchanged: in the end also the object of the API server itself, whose certificate is no longer trusted.
func TestRejectedReviewsPassUnchanged(t *testing.T) {
	t.Parallel()
	const unauthenticated = `heirloom_admission_requests_rejected_total{reason="unauthenticated",server="management"}`
	Expect := NewWithT(t).Expect
	Expect(errors.Join(writeIdentityOnce(), writeIdentity("another"))).To(Succeed())
	trusted := filepath.Join(t.TempDir(), "trusted.crt")
	trust := func(name string) {
		content, err := os.ReadFile(identityFile(name + ".crt"))
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(trusted, content, 0o600)).To(Succeed())
	}
	trust("api-server")
	s := newScene(t, stage.Options{WithoutLoop: true, Args: []string{"--webhook-client-ca-file=" + trusted, "--webhook-client-names=api-server"}})
	f := s.settle("proved", stage.Declared{Labels: map[string]string{"team": "ml"}})
	s.Expect(f.m.Labels).To(HaveKeyWithValue("team", "ml"))
	s.Expect(s.statusOf(s.WebhookURL + "/mutate/machines")).To(Equal(http.StatusUnauthorized))
	s.expectSample(unauthenticated)

	s.Expect(s.StopHeirloom()).To(Succeed())
	trust("another")
	s.Expect(s.StartHeirloom(s.ctx)).To(Succeed())
	m := stage.Machine(f.ms, "untouched")
	s.create(m)
	s.Expect(m.Labels).NotTo(HaveKey("team"))
	s.expectSample(unauthenticated)
}

// identityFile returns the path of a file with the identity of API servers towards webhooks. It is next to the program.
func identityFile(name string) string { return filepath.Join(filepath.Dir(program), name) }

// writeIdentity writes a self-signed certificate with this name, and the configuration of an API server that presents it to webhooks.
func writeIdentity(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key)
	if err != nil {
		return err
	}
	certificates, err := cert.EncodeCertificates(certificate)
	if err != nil {
		return err
	}
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	write := func(extension, content string) error {
		return os.WriteFile(identityFile(name+extension), []byte(content), 0o600)
	}
	plugin := fmt.Sprintf("{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %q}", identityFile(name+".kubeconfig"))
	return errors.Join(
		write(".crt", string(certificates)), write(".key", string(private)),
		write(".kubeconfig", fmt.Sprintf("apiVersion: v1\nkind: Config\nusers: [{name: '*', user: {client-certificate: %q, client-key: %q}}]\n",
			identityFile(name+".crt"), identityFile(name+".key"))),
		write(".yaml", fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"+
			"- {name: MutatingAdmissionWebhook, configuration: %s}\n- {name: ValidatingAdmissionWebhook, configuration: %s}\n", plugin, plugin)),
	)
}
