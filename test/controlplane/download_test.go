// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// hack/tools/build.sh downloads the control plane and builds no part of it, if it can reach the envtest index of Kubernetes.
func TestControlPlaneIsDownloaded(t *testing.T) {
	Expect := NewWithT(t).Expect
	root, err := controlplane.RepositoryRoot(t.Context())
	Expect(err).NotTo(HaveOccurred())
	cache := t.TempDir()
	for set, module := range map[string]string{
		"controlplane": "kubernetes", "controlplane-oldest": "kubernetes-oldest", "controlplane-newest": "kubernetes-newest",
	} {
		pinned, err := os.ReadFile(filepath.Join(root, "hack", "tools", module, "go.mod"))
		Expect(err).NotTo(HaveOccurred())
		version := regexp.MustCompile(`k8s.io/kubernetes (v\S+)`).FindSubmatch(pinned)
		Expect(version).NotTo(BeNil())
		build := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "tools", "build.sh"), set)
		build.Env = append(os.Environ(), "KUBEBUILDER_ASSETS=", "XDG_CACHE_HOME="+cache, "HEIRLOOM_ENVTEST_INDEX="+serveIndex(t, string(version[1])))
		var stderr bytes.Buffer
		build.Stderr = &stderr
		output, err := build.Output()
		Expect(err).NotTo(HaveOccurred(), "%s", &stderr)
		directory := string(bytes.TrimSpace(output))
		Expect(directory).To(ContainSubstring(set + "-" + string(version[1])))
		for _, name := range []string{"kube-apiserver", "etcd"} {
			content, err := os.ReadFile(filepath.Join(directory, name))
			Expect(err).NotTo(HaveOccurred())
			Expect(string(content)).To(Equal("the released " + name + " " + string(version[1])))
		}
		Expect(stderr.String()).NotTo(ContainSubstring("kube-apiserver, etcd (about"), "something was built")
	}
	Expect(filepath.Glob(filepath.Join(cache, "heirloom", "tools-*", "kubectl"))).To(HaveLen(1))
}

// serveIndex serves an index with one release, in the format of the envtest index of Kubernetes, and returns its URL.
func serveIndex(t *testing.T, version string) string {
	t.Helper()
	var archive bytes.Buffer
	compressed := gzip.NewWriter(&archive)
	files := tar.NewWriter(compressed)
	for _, name := range []string{"kube-apiserver", "etcd", "kubectl"} {
		content := "the released " + name + " " + version
		header := &tar.Header{Name: "controller-tools/envtest/" + name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}
		NewWithT(t).Expect(files.WriteHeader(header)).To(Succeed())
		_, err := files.Write([]byte(content))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	}
	NewWithT(t).Expect(files.Close()).To(Succeed())
	NewWithT(t).Expect(compressed.Close()).To(Succeed())
	sum := sha512.Sum512(archive.Bytes())
	name := fmt.Sprintf("envtest-%s-%s-%s.tar.gz", version, runtime.GOOS, runtime.GOARCH)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/"+name {
			_, _ = w.Write(archive.Bytes())
			return
		}
		_, _ = fmt.Fprintf(w, "releases:\n  %s:\n    %s:\n      hash: %s\n      selfLink: http://%s/%s\n",
			version, name, hex.EncodeToString(sum[:]), r.Host, name)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/index.yaml"
}
