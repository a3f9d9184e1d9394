// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heirloom-dev/heirloom/pkg/config"
)

func TestACertificateFromFilesMustBeThere(t *testing.T) {
	c := &config.Config{}
	c.WebhookCertDir = t.TempDir()
	_, err := newCertificate(c)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("loading the serving certificate")))
}

// Before there is a certificate of its own, the program is not ready.
func TestWithoutACertificateTheProgramIsNotReady(t *testing.T) {
	Expect := NewWithT(t).Expect
	c := &config.Config{WebhookCertName: types.NamespacedName{Namespace: "ns", Name: "own"}}
	c.WebhookCertSecret, c.WebhookCertDir = "ns/own", t.TempDir()
	served, err := newCertificate(c)
	Expect(err).NotTo(HaveOccurred())
	Expect(served.own).NotTo(BeNil())
	Expect(served.Check(nil)).NotTo(Succeed())
}
