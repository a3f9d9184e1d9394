// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/config"
)

func TestACertificateFromFilesMustBeThere(t *testing.T) {
	c := &config.Config{}
	c.WebhookCertDir = t.TempDir()
	_, err := addCertificate(t.Context(), nil, c)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("loading the serving certificate")))
}
