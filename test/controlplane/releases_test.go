// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

func TestReleases(t *testing.T) {
	Expect := NewWithT(t).Expect
	releases, err := controlplane.Releases(t.Context())
	Expect(err).NotTo(HaveOccurred())
	// The second one's name changes with go.mod.
	Expect(releases).To(HaveExactElements(HaveField("Name", "v1.13.6"), HaveField("Name", HavePrefix("v1."))))
	Expect(controlplane.CAPICRDPaths()).To(Equal(releases[1].CRDPaths))
	for _, release := range releases {
		t.Run(release.Name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			crds := map[string]string{}
			for _, dir := range release.CRDPaths {
				Expect(dir).To(And(BeADirectory(), ContainSubstring(release.Name)))
				files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
				Expect(err).NotTo(HaveOccurred())
				for _, file := range files {
					crds[filepath.Base(file)] = file
				}
			}
			for _, resource := range []string{
				"cluster.x-k8s.io_clusters", "cluster.x-k8s.io_machines", "bootstrap.cluster.x-k8s.io_kubeadmconfigs",
				"controlplane.cluster.x-k8s.io_kubeadmcontrolplanes",
			} {
				Expect(crds).To(HaveKey(resource + ".yaml"))
				Expect(storedVersion(t, crds[resource+".yaml"])).To(Equal("v1beta2"), resource)
			}
		})
	}
}

func storedVersion(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var crd apiextensionsv1.CustomResourceDefinition
	NewWithT(t).Expect(yaml.Unmarshal(content, &crd)).To(Succeed())
	for _, version := range crd.Spec.Versions {
		if version.Storage {
			return version.Name
		}
	}
	return ""
}
