// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin"
	"github.com/rs/zerolog"
)

// writeSBOM writes the modules of a program, as the program itself lists them. It uses cyclonedx-gomod as a library: its command also
// writes the time, and its own checksum, which differs between machines.
func (r *release) writeSBOM(program, name string) error {
	generator, err := bin.NewGenerator(program,
		bin.WithIncludeStdlib(true), bin.WithVersionOverride(r.version), bin.WithLogger(zerolog.Nop()))
	if err != nil {
		return err
	}
	bom, err := generator.Generate()
	if err != nil {
		return fmt.Errorf("reading which modules %s is made of: %w", program, err)
	}
	file, err := os.Create(filepath.Join(r.out, name+".cdx.json"))
	if err != nil {
		return err
	}
	return errors.Join(cdx.NewBOMEncoder(file, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom), file.Close())
}
