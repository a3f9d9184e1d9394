// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/heirloom-dev/heirloom/pkg/config"
)

// A request that has begun when the server is stopped is answered, and the server ends after it.
func TestARequestThatHasBegunIsAnswered(t *testing.T) {
	g := NewWithT(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-finish
		_, _ = io.WriteString(w, "answered")
	})
	serving, c, running := newIssuer(t).issue("server", x509.ExtKeyUsageServerAuth), &config.Config{}, &onlyAdded{}
	c.WebhookHost = "127.0.0.1"
	g.Expect(addServer(running, c, 0, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil }, false,
		newServer(t.Context(), "webhooks", handler))).To(Succeed())
	server := running.added[0].(*manager.Server)
	address := server.Listener.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended, answer := make(chan error, 1), make(chan string, 1)
	go func() { ended <- server.Start(ctx) }()
	go func() {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		response, err := client.Get("https://" + address)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		answer <- string(body)
	}()

	<-begun
	stop()
	g.Eventually(func() error {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = connection.Close()
		}
		return err
	}).Should(HaveOccurred(), "it listens no more")
	g.Expect(ended).NotTo(Receive())
	close(finish)
	g.Eventually(answer).Should(Receive(Equal("answered")))
	g.Eventually(ended).Should(Receive(BeNil()))
}
