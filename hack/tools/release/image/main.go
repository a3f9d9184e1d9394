// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// release has the settings of a run.
type release struct {
	source     string // directory of Heirloom's module
	out        string
	repository string
	version    string
	revision   string
	created    time.Time
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("image: ")
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r, err := parse()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "heirloom-image")
	if err != nil {
		return err
	}
	return errors.Join(r.write(ctx, work), os.RemoveAll(work))
}

func parse() (*release, error) {
	r := &release{}
	var epoch int64
	flag.StringVar(&r.source, "source", ".", "directory of Heirloom's module")
	flag.StringVar(&r.out, "out", "dist", "directory to write to")
	flag.StringVar(&r.repository, "repository", "ghcr.io/heirloom-dev/heirloom", "the image's name")
	flag.StringVar(&r.version, "version", "", "version, which is the image's tag")
	flag.StringVar(&r.revision, "revision", "", "commit of the sources")
	flag.Int64Var(&epoch, "created", 0, "time that the image bears, in seconds since 1970")
	flag.Parse()
	if r.version == "" || r.revision == "" {
		return nil, errors.New("--version and --revision are needed: use `hack/release.sh image`, which knows them")
	}
	r.created = time.Unix(epoch, 0).UTC()
	return r, os.MkdirAll(r.out, 0o755)
}

// write builds the image for all platforms and writes each as a tarball, and all together as an OCI layout.
func (r *release) write(ctx context.Context, work string) error {
	tag, err := name.NewTag(r.repository+":"+r.version, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("naming the image: %w", err)
	}
	index, err := r.build(ctx, work)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("reading the index: %w", err)
	}
	for _, platform := range manifest.Manifests {
		if err := r.writePlatform(work, index, platform, tag); err != nil {
			return fmt.Errorf("writing the image for %s: %w", platform.Platform, err)
		}
	}
	if err := r.writeLayout(filepath.Join(work, "layout"), index, tag); err != nil {
		return fmt.Errorf("writing the OCI layout: %w", err)
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s@%s\n", tag, digest)
	return copyFile(filepath.Join(work, "heirloom-index.spdx.json"), r.path("index.spdx.json"))
}

// writePlatform writes the image for one platform in docker's format, which every container runtime loads.
func (r *release) writePlatform(work string, index v1.ImageIndex, platform v1.Descriptor, tag name.Tag) error {
	image, err := index.Image(platform.Digest)
	if err != nil {
		return err
	}
	arch := "linux-" + platform.Platform.Architecture
	if err := tarball.WriteToFile(r.path(arch+".tar"), tag, image); err != nil {
		return err
	}
	return copyFile(filepath.Join(work, "heirloom-"+arch+".spdx.json"), r.path(arch+".spdx.json"))
}

// path returns the path of a file of this release.
func (r *release) path(suffix string) string {
	return filepath.Join(r.out, "heirloom-"+r.version+"-"+suffix)
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}
