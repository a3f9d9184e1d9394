// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestWords(t *testing.T) {
	Expect := NewWithT(t).Expect
	Expect([]string{Count(0, "Node"), Count(1, "Node"), Count(2, "Node")}).To(Equal([]string{"0 Nodes", "1 Node", "2 Nodes"}))
	Expect(OneLine(errors.Join(errors.New("a"), errors.New("b")))).To(Equal("a; b"))
	Expect(Shorten("a\n  b")).To(Equal("a b"))
	Expect(Shorten(strings.Repeat("ä", 48))).To(Equal(strings.Repeat("ä", 48)))
	Expect(Shorten(strings.Repeat("ä", 49))).To(Equal(strings.Repeat("ä", 47) + "…"))
}
