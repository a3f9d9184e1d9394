// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestCertificates(t *testing.T) {
	Expect := NewWithT(t).Expect
	c, err := complete(t)
	Expect(err).NotTo(HaveOccurred())
	Expect(c.WebhookCertName.Name).To(BeEmpty(), "from files")

	c, err = complete(t, "--webhook-cert-secret=ns/own", "--webhook-cert-dns-names=a.ns.svc,*.example.com", "--webhook-cert-dns-names=b")
	Expect(err).NotTo(HaveOccurred())
	Expect(c.WebhookCertName.String()).To(Equal("ns/own"))
	Expect(c.WebhookCertDNSNames).To(Equal([]string{"a.ns.svc", "*.example.com", "b"}))
}

func TestClientCertificates(t *testing.T) {
	Expect := NewWithT(t).Expect
	c, err := complete(t, "--webhook-client-ca-file=ca.crt", "--webhook-client-names=a,b")
	Expect(err).NotTo(HaveOccurred())
	Expect(c.WebhookClientCAFile).To(Equal("ca.crt"))
	Expect(c.WebhookClientNames).To(Equal([]string{"a", "b"}))
	_, err = complete(t, "--webhook-client-names=a")
	Expect(err).To(MatchError("--webhook-client-names needs --webhook-client-ca-file"))
}

func TestBadCertificateFlags(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{name: "no namespace", args: []string{"--webhook-cert-secret=own"}, want: `--webhook-cert-secret="own": must be <namespace>/<name>`},
		{name: "no name", args: []string{"--webhook-cert-secret=ns/"}, want: "--webhook-cert-secret"},
		{name: "nowhere to publish", args: []string{"--webhook-configuration="}, want: "--webhook-cert-secret needs --webhook-configuration"},
		{name: "for nobody", args: []string{"--webhook-cert-dns-names="}, want: "--webhook-cert-secret needs --webhook-cert-dns-names"},
		{name: "a URL", args: []string{"--webhook-cert-dns-names=https://h"}, want: `--webhook-cert-dns-names="https://h"`},
		{name: "upper case", args: []string{"--webhook-cert-dns-names=Host"}, want: `--webhook-cert-dns-names="Host"`},
		{name: "an address", args: []string{"--webhook-cert-dns-names=192.0.2.1"}, want: `--webhook-cert-dns-names="192.0.2.1": must be DNS names`},
		{name: "an IPv6 address", args: []string{"--webhook-cert-dns-names=fd00::1"}, want: `--webhook-cert-dns-names="fd00::1"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := []string{"--webhook-cert-secret=ns/own"}
			if tc.name != "for nobody" {
				args = append(args, "--webhook-cert-dns-names=h")
			}
			_, err := complete(t, append(args, tc.args...)...)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tc.want)))
		})
	}
}
