// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

// API servers write managed fields in order, or nearly so. Read in the opposite order, that many would take hours.
func TestManagedFieldsFarOutOfOrderAreNotRead(t *testing.T) {
	const n = 300_000
	reversed, sorted := make([]string, n), make([]string, n)
	for i := range n {
		sorted[i] = fmt.Sprintf(`"f:%07d":{}`, i)
		reversed[n-1-i] = sorted[i]
	}
	read := func(elements ...string) error {
		mine := ours("{}")
		mine.FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{` + strings.Join(elements, ",") + "}}}")
		_, err := managedfields.New(child(entries(mine)), content{}.top(), inherit.Decision{}, nil)
		return err
	}
	Expect := NewWithT(t).Expect
	Expect(read(sorted...)).To(Succeed())
	Expect(read(append(sorted, `"f:0000000a":{}`, `".":{}`, `"x:unknown":{}`)...)).To(Succeed(), "nearly in order")
	Expect(read(reversed...)).To(MatchError(ContainSubstring("far out of order")))
	Expect(read(append([]string{`"f:z":{}`}, reversed...)...)).To(MatchError(ContainSubstring("far out of order")))
	Expect(read(append([]string{`"f:z":[]`}, sorted...)...)).To(MatchError(ContainSubstring("a list among the fields")))
	Expect(read(append([]string{`"f:z":1`}, sorted...)...)).To(MatchError(ContainSubstring("1 among the fields")))
}
