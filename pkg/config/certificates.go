// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

func (o *Options) addCertificateFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.WebhookCertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs/",
		"Directory with the webhook server's certificate and key, tls.crt and tls.key. They are loaded again when they change. Not used with --webhook-cert-secret.")
	fs.StringVar(&o.WebhookCertSecret, "webhook-cert-secret", "",
		"<namespace>/<name> of the Secret in which replicas share a CA and a serving certificate of Heirloom's own, which it makes, replaces and publishes in both webhook configurations named by --webhook-configuration. If unspecified, the certificate comes from --webhook-cert-dir.")
	fs.StringSliceVar(&o.WebhookCertDNSNames, "webhook-cert-dns-names", nil,
		"List of DNS names and IP addresses that the certificate in --webhook-cert-secret is for.")
	fs.DurationVar(&o.WebhookCertValidity, "webhook-cert-validity", 90*24*time.Hour,
		"How long the serving certificate in --webhook-cert-secret is valid. It is replaced when a third of that is left.")
	fs.DurationVar(&o.WebhookCertCAValidity, "webhook-cert-ca-validity", 365*24*time.Hour,
		"How long the CA in --webhook-cert-secret is valid. It is replaced when a third of that is left.")
	fs.DurationVar(&o.WebhookCertCAGrace, "webhook-cert-ca-grace", 24*time.Hour,
		"How long a new CA is published before a certificate signed by it is served, and how long the old CA stays published after that. API servers, including those of workload clusters, have this long to follow.")
	fs.StringVar(&o.WebhookClientCAFile, "webhook-client-ca-file", "",
		"Path to CA certificates. If specified, only clients whose certificate one of these CAs signed are answered on --webhook-port: API servers that have one in the kubeconfig of their admission configuration. It is loaded again when it changes.")
	fs.StringSliceVar(&o.WebhookClientNames, "webhook-client-names", nil,
		"List of common names, one of which a client's certificate must have. If unspecified, every certificate signed by a CA in --webhook-client-ca-file is accepted.")
}

// completeCertificates makes sure that each thing is replaced in time: what a CA has made ends before the CA does.
func (c *Config) completeCertificates() error {
	if c.WebhookCertSecret == "" {
		return nil
	}
	name, nameErr := namespacedName("--webhook-cert-secret", c.WebhookCertSecret, "<namespace>/<name>")
	c.WebhookCertName = name
	errs := []error{
		nameErr,
		check(c.WebhookConfiguration != "", "--webhook-cert-secret needs --webhook-configuration"),
		check(len(c.WebhookCertDNSNames) > 0, "--webhook-cert-secret needs --webhook-cert-dns-names"),
	}
	c.WebhookCertHosts = nil
	for _, host := range c.WebhookCertDNSNames {
		if ip := net.ParseIP(host); ip != nil {
			host = ip.String()
		} else if len(validation.IsDNS1123Subdomain(host)) > 0 && len(validation.IsWildcardDNS1123Subdomain(host)) > 0 {
			errs = append(errs, fmt.Errorf("--webhook-cert-dns-names=%q: must be DNS names in lower case, or IP addresses", host))
		}
		c.WebhookCertHosts = append(c.WebhookCertHosts, host)
	}
	return errors.Join(append(errs,
		check(c.WebhookCertCAGrace >= time.Second, "--webhook-cert-ca-grace=%s: must be a second or more", c.WebhookCertCAGrace),
		check(c.WebhookCertValidity/3 >= c.WebhookCertCAGrace,
			"--webhook-cert-validity=%s: must be at least three times --webhook-cert-ca-grace", c.WebhookCertValidity),
		check(c.WebhookCertCAValidity/3 >= c.WebhookCertValidity,
			"--webhook-cert-ca-validity=%s: must be at least three times --webhook-cert-validity", c.WebhookCertCAValidity),
	)...)
}

func (c *Config) validateClients() error {
	return check(len(c.WebhookClientNames) == 0 || c.WebhookClientCAFile != "", "--webhook-client-names needs --webhook-client-ca-file")
}
