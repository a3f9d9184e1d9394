// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
)

// entry is a file in an archive.
type entry struct {
	path string
	mode int64
}

// writeArchive packs files and returns the archive's checksum. The archive shows nothing of the machine that made it.
func (r *release) writeArchive(name string, files ...entry) (checksum string, err error) {
	var archive bytes.Buffer
	compressed := gzip.NewWriter(&archive)
	w := tar.NewWriter(compressed)
	for _, file := range files {
		content, err := os.ReadFile(file.path)
		if err != nil {
			return "", err
		}
		header := &tar.Header{Name: filepath.Base(file.path), Mode: file.mode, Size: int64(len(content)), ModTime: r.created}
		if err := w.WriteHeader(header); err != nil {
			return "", err
		}
		if _, err := w.Write(content); err != nil {
			return "", err
		}
	}
	if err := errors.Join(w.Close(), compressed.Close()); err != nil {
		return "", err
	}
	sum := sha256.Sum256(archive.Bytes())
	return hex.EncodeToString(sum[:]), os.WriteFile(filepath.Join(r.out, name), archive.Bytes(), 0o644)
}
