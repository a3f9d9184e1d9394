// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
)

func TestNotesAreCut(t *testing.T) {
	for _, tc := range []struct{ name, note, want string }{
		{"a short one", "100 % of a note", "100 % of a note"},
		{"one that just fits", strings.Repeat("x", noteLimit), strings.Repeat("x", noteLimit)},
		{"a long one", strings.Repeat("x", noteLimit+1), strings.Repeat("x", noteLimit) + "…"},
		{"a long one of more than ASCII", strings.Repeat("ü", noteLimit), strings.Repeat("ü", noteLimit/2) + "…"},
		{"one that would be cut within a letter", "x" + strings.Repeat("ü", noteLimit), "x" + strings.Repeat("ü", (noteLimit-1)/2) + "…"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			fake := events.NewFakeRecorder(1)
			Brief(fake).Eventf(&corev1.Node{}, nil, corev1.EventTypeNormal, "Reason", "Action", "%s", tc.note)
			note := strings.TrimPrefix(<-fake.Events, "Normal Reason ")
			Expect(note).To(Equal(tc.want))
			Expect(len(note)).To(BeNumerically("<=", 1024))
			Expect(utf8.ValidString(note)).To(BeTrue())
		})
	}
}
