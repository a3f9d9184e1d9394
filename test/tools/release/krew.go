// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/krew/pkg/constants"
	"sigs.k8s.io/krew/pkg/index"
	"sigs.k8s.io/yaml"
)

// manifest tells krew where the plugin is for each platform.
type manifest struct{ index.Plugin }

func newManifest(version string) *manifest {
	return &manifest{index.Plugin{
		TypeMeta:   metav1.TypeMeta{APIVersion: constants.CurrentAPIVersion, Kind: constants.PluginKind},
		ObjectMeta: metav1.ObjectMeta{Name: "heirloom"},
		Spec: index.PluginSpec{
			Version:          version,
			Homepage:         repository,
			ShortDescription: "Explain what Cluster API objects inherit",
			Description: "Says of each label, annotation, taint and in-place field of a Machine, a Node or\n" +
				"another object of a Cluster API fleet where it was declared, who brings it, and why one\n" +
				"did not arrive. Shows what a change would write, and what is wrong with manifests or with\n" +
				"an installation. Only its command release writes anything.\n",
			Caveats: "For the Tab key, put kubectl_complete-heirloom on your PATH: it is beside the program,\n" +
				"in the directory store/heirloom below krew's.\n",
		},
	}}
}

// add adds a platform, with the program and what else is taken out of its archive.
func (m *manifest) add(system, architecture, archive, checksum, program string, others ...string) {
	var files []index.FileOperation
	for _, file := range append([]string{program, "LICENSE"}, others...) {
		files = append(files, index.FileOperation{From: file, To: "."})
	}
	m.Spec.Platforms = append(m.Spec.Platforms, index.Platform{
		URI:      repository + "/releases/download/" + m.Spec.Version + "/" + archive,
		Sha256:   checksum,
		Bin:      program,
		Files:    files,
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"os": system, "arch": architecture}},
	})
}

func (m *manifest) write(path string) error {
	content, err := yaml.Marshal(m.Plugin)
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}
