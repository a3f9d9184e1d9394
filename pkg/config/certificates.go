// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"net"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

func (o *Options) addCertificateFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.WebhookCertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs/",
		"Directory with the webhook server's certificate and key, tls.crt and tls.key. They are loaded again when they change. With --webhook-cert-secret, Heirloom only writes tls.crt there.")
	fs.StringVar(&o.WebhookCertSecret, "webhook-cert-secret", "",
		"<namespace>/<name> of the Secret in which replicas share a CA and a serving certificate of Heirloom's own, which it makes, replaces and publishes in both webhook configurations named by --webhook-configuration. If unspecified, the certificate comes from --webhook-cert-dir.")
	fs.StringSliceVar(&o.WebhookCertDNSNames, "webhook-cert-dns-names", nil,
		"List of DNS names that the certificate in --webhook-cert-secret is for.")
	fs.StringVar(&o.WebhookClientCAFile, "webhook-client-ca-file", "",
		"Path to CA certificates. If specified, only clients whose certificate one of these CAs signed are answered on --webhook-port: API servers that have one in the kubeconfig of their admission configuration. It is loaded again when it changes.")
	fs.StringSliceVar(&o.WebhookClientNames, "webhook-client-names", nil,
		"List of common names, one of which a client's certificate must have. If unspecified, every certificate signed by a CA in --webhook-client-ca-file is accepted.")
}

func (c *Config) completeCertificates() error {
	if c.WebhookCertSecret == "" {
		return nil
	}
	name, err := namespacedName("--webhook-cert-secret", c.WebhookCertSecret, "<namespace>/<name>")
	c.WebhookCertName = name
	errs := []error{
		err,
		check(c.WebhookConfiguration != "", "--webhook-cert-secret needs --webhook-configuration"),
		check(len(c.WebhookCertDNSNames) > 0, "--webhook-cert-secret needs --webhook-cert-dns-names"),
	}
	for _, host := range c.WebhookCertDNSNames {
		isName := len(validation.IsDNS1123Subdomain(host)) == 0 || len(validation.IsWildcardDNS1123Subdomain(host)) == 0
		errs = append(errs, check(isName && net.ParseIP(host) == nil,
			"--webhook-cert-dns-names=%q: must be DNS names in lower case; a certificate for an IP address can only come from --webhook-cert-dir", host))
	}
	return errors.Join(errs...)
}

func (c *Config) validateClients() error {
	return check(len(c.WebhookClientNames) == 0 || c.WebhookClientCAFile != "", "--webhook-client-names needs --webhook-client-ca-file")
}
