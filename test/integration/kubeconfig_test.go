// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// A tenant who may write the kubeconfig of a Cluster also chooses the server to which credentials are sent. A file that the program can
// read, such as its own token, never gets there, nor is a command run: such a kubeconfig is refused before anything is sent, and
// an Event on the Cluster says why. With credentials of its own, the same Cluster is connected to.
func TestATenantsKubeconfigGetsNothingOfHeirlooms(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, both)
	file := func(name string) string { return filepath.Join(s.dir, name) }
	// All of them are there and would do: what is refused is that they are files.
	writeClient(t, s.dir, "heirloom")
	s.Expect(os.WriteFile(file("token"), []byte("heirloom's own"), 0o600)).To(Succeed())
	plugin := "#!/bin/sh\ntouch " + file("ran") + "\n" +
		`echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "plugin"}}'` + "\n"
	s.Expect(os.WriteFile(file("plugin"), []byte(plugin), 0o700)).To(Succeed())

	var tenants []*tenant
	for _, tc := range []struct{ credentials, why string }{
		{`{tokenFile: ` + file("token") + `}`, `user "u" has tokenFile, which is not supported (use token)`},
		{`{client-certificate: ` + file("tls.crt") + `, client-key: ` + file("tls.key") + `}`,
			`user "u" has client-certificate, which is not supported (use client-certificate-data); user "u" has client-key`},
		{`{exec: {apiVersion: client.authentication.k8s.io/v1, command: ` + file("plugin") + `, interactiveMode: Never}}`, `user "u" has exec`},
	} {
		tenants = append(tenants, s.tenant(tc.credentials, tc.why))
	}
	for _, who := range tenants {
		s.expectEvent("KubeconfigRefused", "Cluster", who.cluster.Name, And(ContainSubstring(who.why), Not(ContainSubstring(s.dir))))
	}
	for _, who := range tenants {
		s.Eventually(func(g Gomega) { // once it is read again, the first time has had all its consequences
			log, err := s.audit.lines()
			g.Expect(err).NotTo(HaveOccurred())
			reads := strings.Count(string(log), `"requestURI":"/api/v1/namespaces/`+who.cluster.Namespace+`/secrets/`+who.cluster.Name+`-kubeconfig"`)
			g.Expect(reads).To(BeNumerically(">=", 2))
		}).WithTimeout(2 * patience).Should(Succeed())
		s.Expect(who.connections.Load()).To(BeZero(), who.why)
		s.Expect(who.seen()).To(BeEmpty(), who.why)
	}
	s.Expect(file("ran")).NotTo(BeAnExistingFile())

	for _, who := range tenants {
		secret := who.secret(`{token: tenant}`)
		s.Expect(s.Client.Patch(s.ctx, secret, client.Merge)).To(Succeed())
	}
	for _, who := range tenants {
		s.Eventually(who.seen).WithTimeout(2*patience).ShouldNot(BeEmpty(), who.why)
		s.Expect(who.seen()).To(HaveEach("Bearer tenant"))
	}
}

// tenant has a Cluster and the server to which its kubeconfig leads.
type tenant struct {
	*httptest.Server
	cluster *clusterv1.Cluster
	// why is what its first kubeconfig is refused for.
	why string
	// connections counts those that were opened, whatever they were for.
	connections atomic.Int64

	mu sync.Mutex
	// authorizations are the headers of all requests.
	authorizations []string
}

// tenant makes a Cluster whose kubeconfig has these credentials.
func (s *scene) tenant(credentials, why string) *tenant {
	s.t.Helper()
	who := &tenant{why: why}
	who.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who.mu.Lock()
		defer who.mu.Unlock()
		who.authorizations = append(who.authorizations, r.Header.Get("Authorization"))
		http.Error(w, "not for you", http.StatusForbidden)
	}))
	who.Listener = counted{who.Listener, &who.connections}
	who.StartTLS()
	s.t.Cleanup(who.Close)

	name := s.own("tenant")
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	who.cluster = stage.Cluster(name, name)
	s.create(who.cluster, who.secret(credentials))
	s.t.Cleanup(func() {
		for _, object := range []client.Object{&clusterv1.Cluster{}, &corev1.Secret{}} {
			if err := s.Client.DeleteAllOf(context.WithoutCancel(s.ctx), object, client.InNamespace(name)); err != nil {
				s.t.Errorf("forgetting a tenant: %v", err)
			}
		}
	})
	before := who.cluster.DeepCopy()
	who.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	s.Expect(s.Client.Status().Patch(s.ctx, who.cluster, client.MergeFrom(before))).To(Succeed())
	return who
}

// secret is the kubeconfig of the Cluster with these credentials.
func (t *tenant) secret(credentials string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.cluster.Namespace, Name: t.cluster.Name + "-kubeconfig"}, Type: clusterv1.ClusterSecretType,
		StringData: map[string]string{"value": fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x,
			clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}], users: [{name: u, user: %s}],
			contexts: [{name: x, context: {cluster: c, user: u}}]}`, t.URL, credentials)},
	}
}

// counted is a listener that counts connections.
type counted struct {
	net.Listener
	connections *atomic.Int64
}

// Accept implements net.Listener.
func (c counted) Accept() (net.Conn, error) {
	connection, err := c.Listener.Accept()
	if err == nil {
		c.connections.Add(1)
	}
	return connection, err
}

// seen returns the Authorization of every request.
func (t *tenant) seen() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.authorizations...)
}
