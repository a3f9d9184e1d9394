// SPDX-License-Identifier: Apache-2.0

// Release packs the programs of a release, which hack/build.sh has built into bin/<platform>. The same programs, version and time give the
// same bytes.
//
//	release image PLATFORM...      a container image for each platform, and all of them as one OCI layout
//	release package PLATFORM...    archives of the kubectl plugin, Heirloom itself for Linux, an SBOM of each
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// release has the settings of a run.
type release struct {
	source            string // directory of Heirloom's module
	out               string
	version, revision string
	created           time.Time
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("release: ")
	r := &release{}
	flag.StringVar(&r.source, "source", "../../..", "directory of Heirloom's module")
	flag.StringVar(&r.out, "out", "../../../dist", "directory to write to")
	flag.StringVar(&r.version, "version", "", "version, such as v1.2.3")
	flag.StringVar(&r.revision, "revision", "", "commit of the sources")
	epoch := flag.Int64("created", 0, "time that all files bear, in seconds since 1970")
	flag.Parse()
	r.created = time.Unix(*epoch, 0).UTC()
	if err := r.run(flag.Arg(0), flag.Args()[min(1, flag.NArg()):]); err != nil {
		log.Fatal(err)
	}
}

func (r *release) run(part string, platforms []string) error {
	if r.version == "" || r.revision == "" {
		return errors.New("-version and -revision are needed: hack/release.sh knows them")
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	switch part {
	case "image":
		return r.writeImages(platforms)
	case "package":
		for _, platform := range platforms {
			if err := r.pack(platform); err != nil {
				return fmt.Errorf("packing the programs for %s: %w", platform, err)
			}
		}
		return nil
	}
	return fmt.Errorf("%q is neither image nor package", part)
}

// pack packs the plugin, with the program that kubectl runs to complete its arguments, as an archive for krew and for people; and Heirloom
// itself, only for Linux, without an archive.
func (r *release) pack(platform string) error {
	system, _, _ := strings.Cut(platform, "-")
	program, completion := "kubectl-heirloom", "kubectl_complete-heirloom"
	if system == "windows" {
		program, completion = program+".exe", completion+".cmd"
	}
	name := fmt.Sprintf("kubectl-heirloom-%s-%s", r.version, platform)
	built := filepath.Join(r.source, "bin", platform, program)
	if err := r.writeSBOM(built, name); err != nil {
		return err
	}
	var archive bytes.Buffer
	compressed := gzip.NewWriter(&archive)
	err := r.writeTar(compressed,
		file{built, program, 0o755},
		file{filepath.Join(r.source, "cmd", "kubectl-heirloom", completion), completion, 0o755},
		file{filepath.Join(r.source, "LICENSE"), "LICENSE", 0o644})
	if err := errors.Join(err, compressed.Close(), os.WriteFile(r.path(name+".tar.gz"), archive.Bytes(), 0o644)); err != nil {
		return err
	}
	if system != "linux" {
		return nil
	}
	name, built = "heirloom-"+platform, filepath.Join(r.source, "bin", platform, "heirloom")
	content, err := os.ReadFile(built)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(r.path(name), content, 0o755), r.writeSBOM(built, name))
}

// path returns the path of a file of the release.
func (r *release) path(name string) string { return filepath.Join(r.out, name) }

// file is a file on disk, and its name and mode in an archive.
type file struct {
	path, name string
	mode       int64
}

// writeTar writes files as a tar that shows nothing of the machine that made it.
func (r *release) writeTar(to io.Writer, files ...file) error {
	w := tar.NewWriter(to)
	for _, file := range files {
		content, err := os.ReadFile(file.path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: file.name, Mode: file.mode, Size: int64(len(content)), ModTime: r.created}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return w.Close()
}
