// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// An API server can prove by a client certificate who it is. Its objects inherit, and nobody else is answered.
func TestAnAPIServerProvesWhoItIs(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage.Options{WithoutLoop: true, Args: []string{
		"--webhook-client-ca-file=" + identityFile("api-server.crt"), "--webhook-client-names=api-server",
	}})
	s.inheritsInTheWrite("proved")

	f := s.settle("asked", declared())
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := insecure.Post(s.WebhookURL+"/mutate/machines", "application/json", bytes.NewReader(s.reviewOf(f.m)))
	s.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	s.Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
	s.expectSample(`heirloom_admission_requests_rejected_total{reason="unauthenticated",server="management"}`, 1)
}

// What is turned away passes untouched: here the requests of an API server whose certificate is not one of those that count.
func TestWhatIsTurnedAwayPassesUntouched(t *testing.T) {
	t.Parallel()
	NewWithT(t).Expect(writeIdentity("another")).To(Succeed())
	s := newScene(t, stage.Options{WithoutLoop: true, Args: []string{"--webhook-client-ca-file=" + identityFile("another.crt")}})
	f := s.settle("untouched", declared())
	ms := stage.MachineSet(f.md, "another")
	s.Expect(s.Client.Create(s.ctx, ms, client.DryRunAll)).To(Succeed())
	s.Expect(ms.Spec.Template.Labels).NotTo(HaveKey("team"))
	s.expectSample(`heirloom_admission_requests_rejected_total{reason="unauthenticated",server="management"}`, 3)
}

// identityFile is a file about who API servers are to webhooks that ask. It goes with the program.
func identityFile(name string) string { return filepath.Join(filepath.Dir(program), name) }

// writeIdentity writes a certificate of that name, which is its own CA, and a configuration of an API server that has it.
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

// reviewOf is an admission request about the create of an object, as an API server sends it.
func (s *scene) reviewOf(object client.Object) []byte {
	s.t.Helper()
	gvk, err := apiutil.GVKForObject(object, stage.Scheme())
	s.Expect(err).NotTo(HaveOccurred())
	object.GetObjectKind().SetGroupVersionKind(gvk)
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Operation: admissionv1.Create, Namespace: object.GetNamespace(), Name: object.GetName(),
			Kind: metav1.GroupVersionKind(gvk), UserInfo: authenticationv1.UserInfo{Username: "somebody"},
			Object: runtime.RawExtension{Object: object},
		},
	})
	s.Expect(err).NotTo(HaveOccurred())
	return body
}
