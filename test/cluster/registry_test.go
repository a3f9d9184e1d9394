// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// registryHost is the registry in the pages. The reader pushes to it, and the Node pulls from it.
const registryHost = "registry.example.com"

// serveRegistry runs crane's registry until the test ends, behind HTTPS and under the name in the pages. It returns the file of the CA
// that clients must trust.
func serveRegistry(t *testing.T, root string) (ca string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	resolve(t, registryHost)
	dir := t.TempDir()
	_, err := controlplane.ServingCertificate(dir, registryHost)
	Expect(err).NotTo(HaveOccurred())
	ca = filepath.Join(dir, "ca.crt")
	Expect(shared.Trust(registryHost, ca)).To(Succeed())

	crane, err := exec.Command("go", "-C", filepath.Join(root, "hack", "tools", "release"), "tool", "-n", "crane").Output()
	Expect(err).NotTo(HaveOccurred())
	port, err := controlplane.FreePort()
	Expect(err).NotTo(HaveOccurred())
	address := fmt.Sprintf("127.0.0.1:%d", port)
	registry, err := controlplane.StartProcess(t.Context(), strings.TrimSpace(string(crane)),
		[]string{"registry", "serve", "--address", address}, filepath.Join(dir, "registry.log"))
	Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { Expect(registry.Stop()).To(Succeed()) })
	NewWithT(t).Eventually(func() error {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		return connection.Close()
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())

	listener, err := net.Listen("tcp", "127.0.0.1:443")
	Expect(err).NotTo(HaveOccurred())
	server := &http.Server{
		Handler:           httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address}),
		ReadHeaderTimeout: patience,
		Protocols:         new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true) // uploads hang where HTTP/2 is forwarded as HTTP/1
	go func() { _ = server.ServeTLS(listener, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")) }()
	t.Cleanup(func() { _ = server.Close() })
	return ca
}

// resolve maps the name of a host to this machine until the test ends, only inside these namespaces.
func resolve(t *testing.T, host string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	source, err := os.Open("/etc/hosts")
	Expect(err).NotTo(HaveOccurred())
	own := filepath.Join(t.TempDir(), "hosts")
	file, err := os.Create(own)
	Expect(err).NotTo(HaveOccurred())
	_, err = io.Copy(file, source)
	Expect(err).NotTo(HaveOccurred())
	Expect(source.Close()).To(Succeed())
	_, err = fmt.Fprintf(file, "\n127.0.0.1 %s\n", host)
	Expect(err).NotTo(HaveOccurred())
	Expect(file.Close()).To(Succeed())
	Expect(syscall.Mount(own, "/etc/hosts", "", syscall.MS_BIND, "")).To(Succeed())
	t.Cleanup(func() { Expect(syscall.Unmount("/etc/hosts", 0)).To(Succeed()) })
}
