// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/ko/pkg/build"
)

const (
	module  = "github.com/heirloom-dev/heirloom"
	nonRoot = "65532:65532" // as in the chart
)

func platforms() []v1.Platform {
	return []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}
}

// build returns the image for all platforms, and leaves ko's SPDX documents in a directory.
func (r *release) build(ctx context.Context, sboms string) (v1.ImageIndex, error) {
	base, err := emptyBase()
	if err != nil {
		return nil, fmt.Errorf("making an empty base image: %w", err)
	}
	var names []string
	for _, platform := range platforms() {
		names = append(names, platform.String())
	}
	options := []build.Option{
		build.WithBaseImages(func(context.Context, string) (name.Reference, build.Result, error) {
			reference, err := name.ParseReference("scratch")
			return reference, base, err
		}),
		build.WithPlatforms(names...),
		build.WithTrimpath(true),
		// Go's information about the checkout differs between a clone, a work tree and a source archive of the same commit.
		build.WithDefaultFlags([]string{"-buildvcs=false"}),
		build.WithLdflags([]string{"-s -w -X " + module + "/pkg/version.version=" + r.version}),
		build.WithCreationTime(v1.Time{Time: r.created}),
		build.WithKoDataCreationTime(v1.Time{Time: r.created}),
		build.WithUser(nonRoot),
		build.WithSPDX(koVersion()),
		build.WithSBOMDir(sboms),
	}
	for key, value := range r.metadata() {
		// Container runtimes show labels, registries show annotations.
		options = append(options, build.WithLabel(key, value), build.WithAnnotation(key, value))
	}
	builder, err := build.NewGo(ctx, r.source, options...)
	if err != nil {
		return nil, err
	}
	result, err := builder.Build(ctx, build.StrictScheme+module+"/cmd/heirloom")
	if err != nil {
		return nil, err
	}
	index, ok := result.(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("ko has built a %T, not an index", result)
	}
	return index, nil
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

// koVersion returns the version of ko that go.mod requires, for the documents that ko writes.
func koVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == "github.com/google/ko" {
				return dependency.Version
			}
		}
	}
	return ""
}

// emptyBase returns an image without content for each platform: the program is static, and needs no CA certificates, because every
// kubeconfig that it uses brings the CA certificate of the API server.
func emptyBase() (v1.ImageIndex, error) {
	base := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range platforms() {
		config, err := empty.Image.ConfigFile()
		if err != nil {
			return nil, err
		}
		config = config.DeepCopy()
		config.OS, config.Architecture = platform.OS, platform.Architecture
		image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
		image, err = mutate.ConfigFile(image, config)
		if err != nil {
			return nil, err
		}
		base = mutate.AppendManifests(base, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{MediaType: types.OCIManifestSchema1, Platform: &platform},
		})
	}
	return base, nil
}
