// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestPainter(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	for _, tc := range []struct {
		color, noColor string
		to             io.Writer
		want           Painter
	}{
		{color: "always", to: file, want: true},
		{color: "always", noColor: "1", to: file, want: true}, // a flag is more than a variable
		{color: "never", to: file},
		{color: "auto", to: file}, // it is no terminal
		{color: "auto", to: &bytes.Buffer{}},
		{color: "auto", noColor: "1", to: file},
	} {
		t.Setenv("NO_COLOR", tc.noColor)
		NewWithT(t).Expect((&Factory{Color: tc.color}).Painter(tc.to)).To(Equal(tc.want), "%+v", tc)
	}
}

func TestPaint(t *testing.T) {
	Expect := NewWithT(t).Expect
	Expect(Painter(true).Paint(Bad, "missing")).To(Equal("\x1b[31mmissing\x1b[0m"))
	Expect(Painter(true).Paint(Bad, "")).To(BeEmpty())
	Expect(Painter(false).Paint(Bad, "missing")).To(Equal("missing"))
}
