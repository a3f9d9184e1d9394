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
				"another object of a Cluster API fleet where it was declared, and who brings it.\n" +
				"It reads the management cluster and writes nothing.\n",
		},
	}}
}

func (m *manifest) add(system, architecture, archive, checksum, program string) {
	m.Spec.Platforms = append(m.Spec.Platforms, index.Platform{
		URI:      repository + "/releases/download/" + m.Spec.Version + "/" + archive,
		Sha256:   checksum,
		Bin:      program,
		Files:    []index.FileOperation{{From: program, To: "."}, {From: "LICENSE", To: "."}},
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
