// SPDX-License-Identifier: Apache-2.0

// Package release tests the files of a release, made by hack/release.sh as for a release.
package release

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// Two copies of the sources in different directories make the same images, SBOMs, chart, components, programs, archives and notes, byte
// for byte. Neither copy is a git checkout. Programs for other systems take minutes to compile, so Linux stands for all.
func TestReleaseIsReproducible(t *testing.T) {
	Expect := NewWithT(t).Expect
	first, second := makeRelease(t), makeRelease(t)
	files, err := os.ReadDir(first)
	Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, file := range files {
		names = append(names, file.Name())
		one, err := os.ReadFile(filepath.Join(first, file.Name()))
		Expect(err).NotTo(HaveOccurred())
		other, err := os.ReadFile(filepath.Join(second, file.Name()))
		Expect(err).NotTo(HaveOccurred())
		Expect(bytes.Equal(one, other)).To(BeTrue(), "%s differs", file.Name())
	}
	want := []string{"heirloom-v1.2.3-oci.tar", "heirloom-1.2.3.tgz", "addon-components.yaml", "metadata.yaml", "release-notes.md"}
	for _, arch := range []string{"amd64", "arm64"} {
		want = append(want, "heirloom-v1.2.3-linux-"+arch+".tar", "heirloom-linux-"+arch, "heirloom-linux-"+arch+".cdx.json",
			"kubectl-heirloom-v1.2.3-linux-"+arch+".tar.gz", "kubectl-heirloom-v1.2.3-linux-"+arch+".cdx.json")
	}
	Expect(names).To(ConsistOf(want))
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		t.Run(arch, func(t *testing.T) {
			checkImage(t, first, arch, machine)
			checkArchive(t, first, arch)
		})
	}
	t.Run("pushed", func(t *testing.T) { checkPush(t, first) })
}

// makeRelease copies the sources and returns the directory with the release.
func makeRelease(t *testing.T) (dist string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	root, err := controlplane.RepositoryRoot(t.Context())
	Expect(err).NotTo(HaveOccurred())
	source, dist := t.TempDir(), t.TempDir()
	for _, dir := range []string{"cmd", "pkg", "webhooks", "certs", "deploy", "hack"} {
		Expect(os.CopyFS(filepath.Join(source, dir), os.DirFS(filepath.Join(root, dir)))).To(Succeed())
	}
	for _, file := range []string{"go.mod", "go.sum", "LICENSE", "CHANGELOG.md"} {
		content, err := os.ReadFile(filepath.Join(root, file))
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(source, file), content, 0o600)).To(Succeed())
	}
	command := exec.CommandContext(t.Context(), filepath.Join(source, "hack", "release.sh"), "image", "components", "binaries", "notes")
	command.Env = append(os.Environ(), "VERSION=v1.2.3", "PLATFORMS=linux-amd64 linux-arm64", "REVISION=0123abc", "SOURCE_DATE_EPOCH=1700000000", "DIST="+dist)
	out, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	return dist
}

// checkImage checks that an image has one static program that runs as an unprivileged user: the program of the release.
func checkImage(t *testing.T, dist, arch string, machine elf.Machine) {
	Expect := NewWithT(t).Expect
	archive := untar(t, filepath.Join(dist, "heirloom-v1.2.3-linux-"+arch+".tar"))
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	Expect(json.Unmarshal(archive["manifest.json"], &manifest)).To(Succeed())
	Expect(manifest).To(HaveLen(1))
	Expect(manifest[0].RepoTags).To(ConsistOf("ghcr.io/heirloom-dev/heirloom:v1.2.3"))

	var image struct {
		Architecture, OS, Created string
		Config                    struct {
			User       string
			Entrypoint []string
			Labels     map[string]string
		}
	}
	Expect(json.Unmarshal(archive[manifest[0].Config], &image)).To(Succeed())
	Expect(image.OS + "/" + image.Architecture).To(Equal("linux/" + arch))
	Expect(image.Created).To(Equal("2023-11-14T22:13:20Z"))
	Expect(image.Config.User).To(Equal("65532:65532"))
	Expect(image.Config.Entrypoint).To(Equal([]string{"/heirloom"}))
	Expect(image.Config.Labels).To(HaveKeyWithValue("org.opencontainers.image.revision", "0123abc"))
	Expect(image.Config.Labels).To(HaveKeyWithValue("org.opencontainers.image.licenses", "Apache-2.0"))

	files := map[string][]byte{}
	for _, layer := range manifest[0].Layers {
		content, err := gzip.NewReader(bytes.NewReader(archive[layer]))
		Expect(err).NotTo(HaveOccurred())
		readTar(t, content, files)
	}
	Expect(files).To(HaveLen(1), "no file but the program")
	program, err := elf.NewFile(bytes.NewReader(files["heirloom"]))
	Expect(err).NotTo(HaveOccurred())
	Expect(program.Machine).To(Equal(machine))
	Expect(program.Section(".interp")).To(BeNil(), "the program is not static")

	Expect(os.ReadFile(filepath.Join(dist, "heirloom-linux-"+arch))).To(Equal(files["heirloom"]))
}

// checkArchive checks the files of the plugin's archive, and that the SBOM lists modules and no time.
func checkArchive(t *testing.T, dist, arch string) {
	Expect := NewWithT(t).Expect
	name := filepath.Join(dist, "kubectl-heirloom-v1.2.3-linux-"+arch)
	archive, err := os.ReadFile(name + ".tar.gz")
	Expect(err).NotTo(HaveOccurred())
	content, err := gzip.NewReader(bytes.NewReader(archive))
	Expect(err).NotTo(HaveOccurred())
	files := map[string][]byte{}
	readTar(t, content, files)
	Expect(files).To(And(HaveLen(3), HaveKey("kubectl-heirloom"), HaveKey("kubectl_complete-heirloom"), HaveKey("LICENSE")))

	sbom, err := os.ReadFile(name + ".cdx.json")
	Expect(err).NotTo(HaveOccurred())
	Expect(string(sbom)).To(And(ContainSubstring(`"name": "sigs.k8s.io/yaml"`), ContainSubstring(`"version": "v1.2.3"`),
		Not(ContainSubstring("timestamp")), Not(ContainSubstring("serialNumber"))))
}

// checkPush pushes image and chart to a registry of the test, and compares the digests there with the files of the release.
func checkPush(t *testing.T, dist string) {
	Expect := NewWithT(t).Expect
	root, err := controlplane.RepositoryRoot(t.Context())
	Expect(err).NotTo(HaveOccurred())
	registry := serveRegistry(t, filepath.Join(root, "hack", "tools", "release"))
	push := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "push.sh"))
	push.Env = append(os.Environ(), "VERSION=v1.2.3", "DIST="+dist, "REGISTRY="+registry, "PUSHFLAGS=--plain-http")
	push.Stderr = t.Output()
	said, err := push.Output()
	Expect(err).NotTo(HaveOccurred())

	var index struct{ Manifests []struct{ Digest string } }
	Expect(json.Unmarshal(untar(t, filepath.Join(dist, "heirloom-v1.2.3-oci.tar"))["index.json"], &index)).To(Succeed())
	Expect(index.Manifests).To(HaveLen(1))
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	Expect(lines).To(ConsistOf(
		"image="+registry+"/heirloom", "image-digest="+index.Manifests[0].Digest,
		"chart="+registry+"/charts/heirloom", HavePrefix("chart-digest=sha256:"),
	))

	pulled := t.TempDir()
	_, _, err = controlplane.Helm(t.Context(), "", "pull", "oci://"+registry+"/charts/heirloom", "--version", "1.2.3",
		"--plain-http", "--destination", pulled)
	Expect(err).NotTo(HaveOccurred())
	chart, err := os.ReadFile(filepath.Join(dist, "heirloom-1.2.3.tgz"))
	Expect(err).NotTo(HaveOccurred())
	Expect(os.ReadFile(filepath.Join(pulled, "heirloom-1.2.3.tgz"))).To(Equal(chart))
}

// serveRegistry runs crane's registry until the test ends, and returns its address with the path of a release's repositories.
func serveRegistry(t *testing.T, module string) string {
	t.Helper()
	Expect := NewWithT(t).Expect
	crane := filepath.Join(t.TempDir(), "crane")
	out, err := exec.CommandContext(t.Context(), "go", "-C", module, "build", "-o", crane,
		"github.com/google/go-containerregistry/cmd/crane").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	registry := exec.CommandContext(t.Context(), crane, "registry", "serve", "--address", "127.0.0.1:0")
	log, err := registry.StderrPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(registry.Start()).To(Succeed())
	t.Cleanup(func() { _ = registry.Wait() })
	lines := bufio.NewScanner(log)
	Expect(lines.Scan()).To(BeTrue())
	_, port, found := strings.Cut(lines.Text(), "serving on port ")
	Expect(found).To(BeTrue(), lines.Text())
	go func() { _, _ = io.Copy(io.Discard, log) }()
	return "127.0.0.1:" + port + "/heirloom-dev"
}

// untar returns the files of a tar by name.
func untar(t *testing.T, path string) map[string][]byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	readTar(t, bytes.NewReader(content), files)
	return files
}

func readTar(t *testing.T, content io.Reader, files map[string][]byte) {
	t.Helper()
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if files[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}
