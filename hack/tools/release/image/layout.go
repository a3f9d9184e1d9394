// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// writeLayout writes an OCI layout into a directory, and packs the directory.
func (r *release) writeLayout(dir string, index v1.ImageIndex, tag name.Tag) error {
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// containerd reads the first name of an image, all other programs read the second.
	annotations := map[string]string{
		"io.containerd.image.name":          tag.String(),
		"org.opencontainers.image.ref.name": tag.TagStr(),
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return err
	}
	archive, err := os.Create(r.path("oci.tar"))
	if err != nil {
		return err
	}
	return errors.Join(r.pack(archive, dir), archive.Close())
}

// pack writes a directory as a tar that shows nothing of the machine that made it.
func (r *release) pack(archive io.Writer, dir string) error {
	w := tar.NewWriter(archive)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		header := &tar.Header{
			Name: filepath.ToSlash(relative), Mode: 0o644, Size: int64(len(content)), ModTime: r.created,
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	return errors.Join(err, w.Close())
}
