// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const repository = "https://github.com/heirloom-dev/heirloom"

// release has the settings of a run.
type release struct {
	source  string // directory of Heirloom's module
	out     string
	version string
	created time.Time
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("release: ")
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("say what to do: check, package or notes")
	}
	r := &release{}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&r.source, "source", "../../..", "directory of Heirloom's module")
	flags.StringVar(&r.out, "out", "../../../dist", "directory to write to")
	flags.StringVar(&r.version, "version", "", "version, such as v1.2.3")
	epoch := flags.Int64("created", 0, "time that files in archives bear, in seconds since 1970")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if r.version == "" {
		return errors.New("--version is needed: use make, which knows it")
	}
	r.created = time.Unix(*epoch, 0).UTC()
	switch args[0] {
	case "check":
		return r.check()
	case "package":
		return r.pack(flags.Args())
	case "notes":
		return r.writeNotes()
	}
	return fmt.Errorf("%q is none of check, package and notes", args[0])
}

// pack packs the programs in bin/<platform> of the sources: the plugin, with the program that kubectl runs to complete its arguments, as an
// archive for krew and for people; and Heirloom itself, only for Linux, without an archive.
func (r *release) pack(platforms []string) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	checksums := map[string]string{}
	for _, platform := range platforms {
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
		checksum, err := r.writeArchive(name+".tar.gz",
			entry{built, 0o755},
			entry{filepath.Join(r.source, "cmd", "kubectl-heirloom", completion), 0o755},
			entry{filepath.Join(r.source, "LICENSE"), 0o644})
		if err != nil {
			return fmt.Errorf("packing the plugin for %s: %w", platform, err)
		}
		checksums[name+".tar.gz"] = checksum
		if system == "linux" {
			if err := r.copyProgram(platform); err != nil {
				return err
			}
		}
	}
	return r.writeManifest(checksums)
}

func (r *release) copyProgram(platform string) error {
	built := filepath.Join(r.source, "bin", platform, "heirloom")
	content, err := os.ReadFile(built)
	if err != nil {
		return err
	}
	name := "heirloom-" + platform
	if err := os.WriteFile(filepath.Join(r.out, name), content, 0o755); err != nil {
		return err
	}
	return r.writeSBOM(built, name)
}
