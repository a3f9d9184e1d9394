// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	module     = "github.com/heirloom-dev/heirloom"
	repository = "ghcr.io/heirloom-dev/heirloom"
	nonRoot    = "65532:65532" // as in the chart
)

// writeImages writes the image of each Linux in docker's format, which every container runtime loads, and all of them as one OCI layout,
// with the digests that a registry has.
func (r *release) writeImages(platforms []string) error {
	tag, err := name.NewTag(repository+":"+r.version, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("naming the image: %w", err)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range platforms {
		system, architecture, _ := strings.Cut(platform, "-")
		if system != "linux" {
			continue
		}
		image, err := r.image(platform, architecture)
		if err != nil {
			return fmt.Errorf("making the image for %s: %w", platform, err)
		}
		if err := tarball.WriteToFile(r.path("heirloom-"+r.version+"-"+platform+".tar"), tag, image); err != nil {
			return fmt.Errorf("writing the image for %s: %w", platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			MediaType: types.OCIManifestSchema1, Platform: &v1.Platform{OS: system, Architecture: architecture},
		}})
	}
	return r.writeLayout(mutate.Annotations(index, r.metadata()).(v1.ImageIndex), tag)
}

// image returns an image with the program alone: it is static, and needs no CA certificates, because every kubeconfig that it uses brings
// the CA certificate of the API server.
func (r *release) image(platform, architecture string) (v1.Image, error) {
	var content bytes.Buffer
	if err := r.writeTar(&content, file{filepath.Join(r.source, "bin", platform, "heirloom"), "heirloom", 0o755}); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: r.created}
	image, err := mutate.ConfigFile(mutate.MediaType(empty.Image, types.OCIManifestSchema1), &v1.ConfigFile{
		OS: "linux", Architecture: architecture, Created: created,
		// Container runtimes show labels, registries show annotations.
		Config: v1.Config{User: nonRoot, Entrypoint: []string{"/heirloom"}, Labels: r.metadata()},
	})
	if err != nil {
		return nil, err
	}
	image, err = mutate.Append(mutate.ConfigMediaType(image, types.OCIConfigJSON),
		mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "hack/release.sh"}})
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, r.metadata()).(v1.Image), nil
}

func (r *release) metadata() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":         "Heirloom",
		"org.opencontainers.image.description":   "Labels, annotations and taints for every object of a Cluster API fleet",
		"org.opencontainers.image.source":        "https://" + module,
		"org.opencontainers.image.documentation": "https://" + module + "/tree/main/docs",
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.version":       r.version,
		"org.opencontainers.image.revision":      r.revision,
	}
}

// writeLayout writes an OCI layout, packs it, and prints the image's name and digest.
func (r *release) writeLayout(index v1.ImageIndex, tag name.Tag) (err error) {
	dir, err := os.MkdirTemp("", "heirloom-image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// containerd reads the first name of an image, all other programs read the second.
	annotations := map[string]string{"io.containerd.image.name": tag.String(), "org.opencontainers.image.ref.name": tag.TagStr()}
	if err := path.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return err
	}
	var files []file
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		files = append(files, file{path, filepath.ToSlash(relative), 0o644})
		return err
	})
	if err != nil {
		return err
	}
	archive, err := os.Create(r.path("heirloom-" + r.version + "-oci.tar"))
	if err != nil {
		return err
	}
	if err := errors.Join(r.writeTar(archive, files...), archive.Close()); err != nil {
		return err
	}
	digest, err := index.Digest()
	fmt.Printf("%s@%s\n", tag, digest)
	return err
}
