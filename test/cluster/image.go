// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// pauseProgram holds a Pod's namespaces: it does nothing until a signal ends it.
const pauseProgram = "test/cluster/pause"

// buildPauseImage builds the pause image that every Pod needs, as an archive in Docker's format. It has only one program, which is
// statically linked.
func buildPauseImage(ctx context.Context, dir string) (archive string, err error) {
	root, err := controlplane.RepositoryRoot(ctx)
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "pause")
	build := exec.CommandContext(ctx, "go", "build", "-C", root, "-o", program, "./"+pauseProgram)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w: %s", pauseProgram, err, out)
	}
	layer := program + ".layer.tar"
	if err := writeTar(layer, map[string]string{"pause": program}); err != nil {
		return "", fmt.Errorf("making an image: %w", err)
	}
	config, manifest, err := describeImage(layer)
	if err != nil {
		return "", fmt.Errorf("making an image: %w", err)
	}
	archive = program + ".tar"
	return archive, writeTar(archive, map[string]string{"layer.tar": layer, "config.json": config, "manifest.json": manifest})
}

// describeImage writes the two metadata files of an image with one layer, whose entry point is /pause.
func describeImage(layer string) (config, manifest string, err error) {
	content, err := os.ReadFile(layer)
	if err != nil {
		return "", "", err
	}
	config, manifest = layer+".config.json", layer+".manifest.json"
	err = writeJSON(config, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/pause"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(content))}},
	})
	if err != nil {
		return "", "", err
	}
	return config, manifest, writeJSON(manifest, []map[string]any{{
		"Config": "config.json", "RepoTags": []string{PauseImage}, "Layers": []string{"layer.tar"},
	}})
}

func writeJSON(path string, value any) error {
	content, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

// writeTar writes an archive of these files, by their names in it.
func writeTar(path string, files map[string]string) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(out)
	for name, source := range files {
		if err := addFile(archive, name, source); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return out.Close()
}

func addFile(archive *tar.Writer, name, source string) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err = archive.Write(content)
	return err
}

// importImage imports the images of an archive into containerd and returns the name of the first image.
func importImage(ctx context.Context, archive string) (string, error) {
	out, err := exec.CommandContext(ctx, "ctr", "--namespace", "k8s.io", "images", "import", archive).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("loading the image %s into containerd: %w: %s", archive, err, out)
	}
	fields := strings.Fields(strings.TrimPrefix(string(out), "unpacking "))
	if len(fields) == 0 {
		return "", fmt.Errorf("loading the image %s into containerd: it does not say which: %s", archive, out)
	}
	return fields[0], nil
}
