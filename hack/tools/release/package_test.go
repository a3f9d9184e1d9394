// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// The program of this test stands for the programs of a release.
func TestPackage(t *testing.T) {
	Expect := NewWithT(t).Expect
	out := packed(t)
	var names []string
	files, err := os.ReadDir(out)
	Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		names = append(names, file.Name())
	}
	Expect(names).To(ConsistOf(
		"heirloom.yaml", "heirloom-linux-arm64", "heirloom-linux-arm64.cdx.json",
		"kubectl-heirloom-v1.2.3-linux-arm64.tar.gz", "kubectl-heirloom-v1.2.3-linux-arm64.cdx.json",
		"kubectl-heirloom-v1.2.3-windows-amd64.tar.gz", "kubectl-heirloom-v1.2.3-windows-amd64.cdx.json",
	))
	Expect(archived(t, filepath.Join(out, "kubectl-heirloom-v1.2.3-linux-arm64.tar.gz"))).
		To(HaveExactElements("-rwxr-xr-x kubectl-heirloom 2023-11-14", "-rwxr-xr-x kubectl_complete-heirloom 2023-11-14", "-rw-r--r-- LICENSE 2023-11-14"))
	Expect(archived(t, filepath.Join(out, "kubectl-heirloom-v1.2.3-windows-amd64.tar.gz"))).
		To(HaveExactElements("-rwxr-xr-x kubectl-heirloom.exe 2023-11-14", "-rwxr-xr-x kubectl_complete-heirloom.cmd 2023-11-14", "-rw-r--r-- LICENSE 2023-11-14"))

	content, err := os.ReadFile(filepath.Join(out, "heirloom-linux-arm64.cdx.json"))
	Expect(err).NotTo(HaveOccurred())
	var sbom struct {
		BOMFormat, SerialNumber string
		Metadata                struct {
			Timestamp string
			Component struct{ Version string }
		}
		Components []struct{ Name, Version string }
	}
	Expect(json.Unmarshal(content, &sbom)).To(Succeed())
	Expect(sbom.BOMFormat).To(Equal("CycloneDX"))
	Expect(sbom.Metadata.Component.Version).To(Equal("v1.2.3"))
	Expect(sbom.SerialNumber+sbom.Metadata.Timestamp).To(BeEmpty(), "they would differ each time")
	Expect(sbom.Components).To(ContainElements(
		And(HaveField("Name", "sigs.k8s.io/yaml"), HaveField("Version", Not(BeEmpty()))),
		HaveField("Name", "std"),
	))
}

// krew's own check, which its index runs, accepts the manifest. krew installs the plugin, and finds the files of the manifest in each
// archive, including the licence.
func TestKrewInstalls(t *testing.T) {
	out := packed(t)
	validated, err := exec.CommandContext(t.Context(), "go", "tool", "validate-krew-manifest",
		"-skip-install", "-manifest", filepath.Join(out, "heirloom.yaml")).CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), "%s", validated)
	for platform, files := range map[[2]string][]string{
		{"linux", "arm64"}:   {"kubectl-heirloom", "kubectl_complete-heirloom"},
		{"windows", "amd64"}: {"kubectl-heirloom.exe", "kubectl_complete-heirloom.cmd"},
	} {
		t.Run(platform[0], func(t *testing.T) {
			Expect := NewWithT(t).Expect
			root := t.TempDir()
			krew := exec.CommandContext(t.Context(), "go", "tool", "krew", "install",
				"--manifest", filepath.Join(out, "heirloom.yaml"),
				"--archive", filepath.Join(out, "kubectl-heirloom-v1.2.3-"+platform[0]+"-"+platform[1]+".tar.gz"))
			krew.Env = append(os.Environ(), "KREW_ROOT="+root, "KREW_OS="+platform[0], "KREW_ARCH="+platform[1], "KREW_NO_UPGRADE_CHECK=1")
			said, err := krew.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s", said)
			installed := filepath.Join(root, "store", "heirloom", "v1.2.3")
			for _, file := range append(files, "LICENSE") {
				Expect(filepath.Join(installed, file)).To(BeARegularFile())
			}
		})
	}
}

// packed returns the directory of a package for two platforms.
func packed(t *testing.T) (out string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	source, out := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	Expect(err).NotTo(HaveOccurred())
	for _, file := range []string{
		"bin/linux-arm64/heirloom", "bin/linux-arm64/kubectl-heirloom", "bin/windows-amd64/kubectl-heirloom.exe",
	} {
		Expect(os.MkdirAll(filepath.Join(source, filepath.Dir(file)), 0o755)).To(Succeed())
		Expect(os.Symlink(self, filepath.Join(source, file))).To(Succeed())
	}
	completion := filepath.Join(source, "cmd", "kubectl-heirloom")
	Expect(os.MkdirAll(completion, 0o755)).To(Succeed())
	for _, file := range []string{"kubectl_complete-heirloom", "kubectl_complete-heirloom.cmd"} {
		Expect(os.WriteFile(filepath.Join(completion, file), []byte("#!/bin/sh\n"), 0o600)).To(Succeed())
	}
	Expect(os.WriteFile(filepath.Join(source, "LICENSE"), []byte("a licence"), 0o600)).To(Succeed())
	krew, err := os.ReadFile(filepath.Join("..", "..", "..", ".krew.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(source, ".krew.yaml"), krew, 0o600)).To(Succeed())
	Expect(run([]string{"package", "--source", source, "--out", out, "--version", "v1.2.3", "--created", "1700000000",
		"linux-arm64", "windows-amd64"})).To(Succeed())
	return out
}

// archived returns mode, name and date of the files in an archive.
func archived(t *testing.T, path string) (files []string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	file, err := os.Open(path)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	content, err := gzip.NewReader(file)
	Expect(err).NotTo(HaveOccurred())
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		Expect(err).NotTo(HaveOccurred())
		files = append(files, header.FileInfo().Mode().String()+" "+header.Name+" "+header.ModTime.UTC().Format("2006-01-02"))
	}
}
