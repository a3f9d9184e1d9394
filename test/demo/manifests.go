// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// write edits a manifest and writes it into the demo's directory, where kubectl finds it.
func (d *demo) write(name string, edits ...func(content string) string) error {
	raw, err := manifests.ReadFile("manifests/" + name)
	if err != nil {
		return fmt.Errorf("reading a manifest: %w", err)
	}
	content := string(raw)
	for _, edit := range edits {
		content = edit(content)
	}
	if err := os.WriteFile(filepath.Join(d.dir, name), []byte(content), 0o600); err != nil {
		return fmt.Errorf("writing a manifest: %w", err)
	}
	return nil
}

// ownedBy fills in the UID of the owner, which only a stored object has.
func ownedBy(uid types.UID) func(string) string {
	return func(content string) string { return strings.ReplaceAll(content, "OWNER", string(uid)) }
}

// withoutLine leaves out the lines that contain text.
func withoutLine(text string) func(string) string {
	return func(content string) string {
		var b strings.Builder
		for line := range strings.Lines(content) {
			if !strings.Contains(line, text) {
				b.WriteString(line)
			}
		}
		return b.String()
	}
}

// decode reads the objects in a stream of YAML or JSON.
func decode[T any](stream []byte) ([]T, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096)
	var objects []T
	for {
		var object T
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decoding %T: %w", object, err)
		}
		objects = append(objects, object)
	}
}
