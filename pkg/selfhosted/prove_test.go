// SPDX-License-Identifier: Apache-2.0

package selfhosted_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/heirloom-dev/heirloom/pkg/selfhosted"
)

// apiServer answers what the proof asks. It knows tokens: "admin" may do everything, "reader" may read, others may not.
type apiServer struct {
	*httptest.Server
	uid types.UID
	// generous lets everybody do everything, as a tenant's server may say.
	generous bool
	// endless makes it answer until its client has had enough.
	endless bool
	mu      sync.Mutex
	tokens  []string
}

func newAPIServer(t *testing.T, uid types.UID) *apiServer {
	t.Helper()
	s := &apiServer{uid: uid}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(s.answer))
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) answer(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	s.tokens = append(s.tokens, token)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	for s.endless {
		if _, err := w.Write(make([]byte, 1<<16)); err != nil {
			return
		}
	}
	var body any
	switch {
	case !s.generous && token != "admin" && token != "reader":
		w.WriteHeader(http.StatusUnauthorized)
		body = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Code: http.StatusUnauthorized, Reason: metav1.StatusReasonUnauthorized}
	case r.URL.Path == "/api/v1/namespaces/kube-system":
		body = corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: s.uid}}
	case r.URL.Path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
		w.WriteHeader(http.StatusCreated)
		body = authorizationv1.SelfSubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
			Status:   authorizationv1.SubjectAccessReviewStatus{Allowed: s.generous || token == "admin"},
		}
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(body)
}

func (s *apiServer) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// kubeconfig leads to the server with a token.
func (s *apiServer) kubeconfig(t *testing.T, token string, change func(*clientcmdapi.Config)) []byte {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: s.ca()}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	if change != nil {
		change(config)
	}
	raw, err := clientcmd.Write(*config)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return raw
}

// Only an administrator's kubeconfig that leads to our own API server proves anything, and our own credentials go nowhere.
func TestProve(t *testing.T) {
	ours := newAPIServer(t, "ours")
	theirs := newAPIServer(t, "theirs")
	liar := newAPIServer(t, "ours")
	liar.generous = true
	babbler := newAPIServer(t, "ours")
	babbler.endless = true
	away := newAPIServer(t, "ours")
	awayConfig := away.kubeconfig(t, "admin", nil)
	away.Close()
	for _, tc := range []struct {
		name       string
		kubeconfig []byte
		want       bool
		problem    string
	}{
		{name: "an administrator's kubeconfig of our own API server", kubeconfig: ours.kubeconfig(t, "admin", nil), want: true},
		{name: "another API server", kubeconfig: theirs.kubeconfig(t, "admin", nil)},
		{name: "a server that lies about its UID and about everything else", kubeconfig: liar.kubeconfig(t, "tenant", nil)},
		{name: "the same with a user of ours that may only read", kubeconfig: liar.kubeconfig(t, "reader", nil)},
		{name: "the same without credentials", kubeconfig: liar.kubeconfig(t, "", nil)},
		{name: "our own API server with a user that may only read", kubeconfig: ours.kubeconfig(t, "reader", nil)},
		{name: "our own API server with a user that it does not know", kubeconfig: ours.kubeconfig(t, "tenant", nil)},
		{name: "a server that does not answer", kubeconfig: awayConfig, problem: "asking the API server that the kubeconfig leads to"},
		{name: "a server that answers without end", kubeconfig: babbler.kubeconfig(t, "tenant", nil), problem: "too large"},
		{name: "a kubeconfig that names a file of ours", problem: "has tokenFile", kubeconfig: ours.kubeconfig(t, "", func(c *clientcmdapi.Config) {
			c.AuthInfos["u"].TokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"
		})},
		{name: "no kubeconfig", problem: "own-kubeconfig"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			objects := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).
				WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "ours"}})
			if tc.kubeconfig != nil {
				objects = objects.WithObjects(&corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "own-kubeconfig"}, Data: map[string][]byte{"value": tc.kubeconfig},
				})
			}
			prover := selfhosted.Prover{Live: objects.Build(), Config: &rest.Config{
				Host: ours.URL, BearerToken: "pod", TLSClientConfig: rest.TLSClientConfig{CAData: ours.ca()},
			}}
			got, err := prover.Prove(t.Context(), types.NamespacedName{Namespace: "ns", Name: "own"})
			Expect(got).To(Equal(tc.want))
			if tc.problem == "" {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			}
			for _, server := range []*apiServer{ours, theirs, liar} {
				server.mu.Lock()
				Expect(slices.Contains(server.tokens, "pod")).To(BeFalse(), "our own token is sent to nobody")
				server.mu.Unlock()
			}
		})
	}
}
