// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"sigs.k8s.io/krew/pkg/index"
	"sigs.k8s.io/yaml"
)

// writeManifest fills in .krew.yaml, which shows krew the location of the plugin, as krew-release-bot does. checksums has the checksums of
// the archives by their names; a platform without an archive is left out.
func (r *release) writeManifest(checksums map[string]string) error {
	const name = ".krew.yaml"
	content, err := os.ReadFile(filepath.Join(r.source, name))
	if err != nil {
		return err
	}
	tag := map[string]string{"TagName": r.version}
	parsed, err := template.New(name).Option("missingkey=error").Funcs(template.FuncMap{"addURIAndSha": func(uri, _ string) string {
		uri = strings.ReplaceAll(uri, "{{ .TagName }}", r.version)
		return fmt.Sprintf("uri: %s\n      sha256: %q", uri, checksums[path.Base(uri)])
	}}).Parse(string(content))
	if err != nil {
		return err
	}
	var filled bytes.Buffer
	if err := parsed.Execute(&filled, tag); err != nil {
		return err
	}
	var plugin index.Plugin
	if err := yaml.UnmarshalStrict(filled.Bytes(), &plugin); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	plugin.Spec.Platforms = slices.DeleteFunc(plugin.Spec.Platforms, func(p index.Platform) bool { return p.Sha256 == "" })
	if len(plugin.Spec.Platforms) != len(checksums) {
		return fmt.Errorf("%s has %d of %d platforms for which there are archives", name, len(plugin.Spec.Platforms), len(checksums))
	}
	if content, err = yaml.Marshal(plugin); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "heirloom.yaml"), content, 0o644)
}
