// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

func TestEntryOf(t *testing.T) {
	label := inherit.Entry{What: "label", Name: "a", Own: true}
	for _, tc := range []struct {
		err  error
		want inherit.Entry
	}{
		{&inherit.Problem{Entry: label, Reason: "x"}, label},
		{&taint.UnusableError{ID: taint.ID{Key: "a", Effect: corev1.TaintEffectNoSchedule}, Reason: "x"}, inherit.Entry{What: "taint", Name: "a:NoSchedule"}},
		{&taint.AnnotationError{Name: taint.AlwaysAnnotation}, inherit.Entry{What: "annotation", Name: taint.AlwaysAnnotation}},
		{errors.New("a Node has no room for all of them"), inherit.Entry{}},
	} {
		NewWithT(t).Expect(inherit.EntryOf(tc.err)).To(Equal(tc.want))
	}
}
