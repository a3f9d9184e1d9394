// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
)

const (
	// aWeek is how long a certificate that is not renewed automatically should still be valid, as the alert HeirloomCertificateExpiring says.
	aWeek = 7 * 24 * time.Hour
	// issuedAnnotation is cert-manager's, on a Secret that it renews.
	issuedAnnotation = "cert-manager.io/certificate-name"

	certificatePage = "docs/runbooks/HeirloomCertificateExpiring.md"
)

// endpoint is where webhooks are called, and the CA certificates that they are registered with.
type endpoint struct {
	// address is "<host>:<port>", serverName what the certificate must be for.
	address, serverName string
	// service is empty if the webhooks have a URL.
	service types.NamespacedName
	bundle  string
	// webhooks names one that is called there.
	webhook string
}

func certificates(ctx context.Context, w *world) Result {
	found, err := w.installation()
	if err == nil {
		err = found.configErr
	}
	if err != nil {
		return unknown("The webhook configurations could not be read: %v", err)
	}
	endpoints := endpoints(found.configurations)
	if len(endpoints) == 0 {
		return skipped("No webhook is registered.")
	}
	worst := w.endpoint(ctx, endpoints[0], found)
	for _, e := range endpoints[1:] {
		if one := w.endpoint(ctx, e, found); rank(one.Status) > rank(worst.Status) {
			worst = one
		}
	}
	return worst
}

// rank orders statuses: what is worse is more.
func rank(s Status) int { return slices.Index([]Status{Skipped, OK, Unknown, Warning, Failed}, s) }

// endpoints returns each place where webhooks are called, once.
func endpoints(all []configuration) []endpoint {
	var found []endpoint
	for _, c := range all {
		for _, w := range c.webhooks {
			e := endpointOf(w)
			e.webhook = fmt.Sprintf("%s, webhook %s", c, w.Name)
			if !slices.ContainsFunc(found, func(o endpoint) bool { return o.address == e.address && o.bundle == e.bundle }) {
				found = append(found, e)
			}
		}
	}
	return found
}

func endpointOf(w admissionv1.MutatingWebhook) endpoint {
	e := endpoint{bundle: string(w.ClientConfig.CABundle)}
	if s := w.ClientConfig.Service; s != nil {
		e.service = types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
		e.serverName = s.Name + "." + s.Namespace + ".svc"
		e.address = net.JoinHostPort(e.serverName, "443")
		return e
	}
	if w.ClientConfig.URL != nil {
		if parsed, err := url.Parse(*w.ClientConfig.URL); err == nil {
			e.serverName = parsed.Hostname()
			e.address = net.JoinHostPort(e.serverName, cmp.Or(parsed.Port(), "443"))
		}
	}
	return e
}

// endpoint checks the certificate that is served at one place.
func (w *world) endpoint(ctx context.Context, e endpoint, found *installation) Result {
	if e.bundle == "" {
		return failed("%s has no caBundle: no API server can verify what is served.", e.webhook).
			next("With cert-manager: look at the log of its cainjector. See docs/certificates.md.")
	}
	roots, err := cert.ParseCertsPEM([]byte(e.bundle))
	if err != nil {
		return failed("The caBundle of %s cannot be read: %v", e.webhook, err).next("See docs/certificates.md.")
	}
	served, err := w.served(ctx, e, found)
	if err != nil {
		return unknown("The caBundle can be read; the serving certificate could not: %v", err).
			next("Ask for the right to get this Secret, or look at the metric heirloom_webhook_certificate_expiration_timestamp_seconds.")
	}
	return w.judge(e, roots, served)
}

// chain is what is served, the serving certificate first.
type chain struct {
	certificates []*x509.Certificate
	// from says where it was read, renewed that something renews it.
	from    string
	renewed bool
}

// served finds the serving certificate: in the Secret of the Deployment, or by asking the URL.
func (w *world) served(ctx context.Context, e endpoint, found *installation) (chain, error) {
	if e.service.Name == "" {
		certificates, err := w.Served(ctx, e.address, e.serverName)
		if err != nil {
			return chain{}, fmt.Errorf("connecting to %s: %w", e.address, err)
		}
		return chain{certificates: certificates, from: e.address}, nil
	}
	known, err := w.settings()
	if err != nil {
		return chain{}, err
	}
	key, err := secretOf(e.service.Namespace, found, known)
	if err != nil {
		return chain{}, err
	}
	secret := &corev1.Secret{}
	if err := w.Client.Get(ctx, key, secret); err != nil {
		return chain{}, err
	}
	certificates, err := cert.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
	if err != nil {
		return chain{}, fmt.Errorf("reading %s of Secret %s: %w", corev1.TLSCertKey, key, err)
	}
	renewed := key == known.Config.WebhookCertName || secret.Annotations[issuedAnnotation] != ""
	return chain{certificates: certificates, from: "Secret " + key.String(), renewed: renewed}, nil
}

// secretOf returns the Secret with the serving certificate: Heirloom's own, or the one that is mounted where the program reads it.
func secretOf(namespace string, found *installation, known settings.Settings) (types.NamespacedName, error) {
	if known.Config.WebhookCertName.Name != "" {
		return known.Config.WebhookCertName, nil
	}
	if found.deploymentErr != nil {
		return types.NamespacedName{}, found.deploymentErr
	}
	missing := errors.New("no Deployment mounts a Secret with it")
	if found.deployment == nil || found.deployment.Namespace != namespace {
		return types.NamespacedName{}, missing
	}
	pod := found.deployment.Spec.Template.Spec
	for _, container := range pod.Containers {
		for _, mount := range container.VolumeMounts {
			if path.Clean(mount.MountPath) != path.Clean(known.Config.WebhookCertDir) {
				continue
			}
			if i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name && v.Secret != nil }); i >= 0 {
				return types.NamespacedName{Namespace: namespace, Name: pod.Volumes[i].Secret.SecretName}, nil
			}
		}
	}
	return types.NamespacedName{}, missing
}

// judge verifies a serving certificate as an API server does.
func (w *world) judge(e endpoint, roots []*x509.Certificate, served chain) Result {
	leaf, now := served.certificates[0], w.Now()
	options := x509.VerifyOptions{
		Roots: pool(roots), Intermediates: pool(served.certificates[1:]), DNSName: e.serverName, CurrentTime: now,
	}
	what := "The serving certificate in " + served.from
	if _, err := leaf.Verify(options); err != nil {
		return failed("%s is refused by API servers: %s.", what, strings.TrimPrefix(err.Error(), "x509: ")).
			with(describe("serving certificate", leaf)).with(describeAll("CA of the webhooks", roots)...).next("See %s.", certificatePage)
	}
	end, limit := leaf.NotAfter, aWeek
	if served.renewed {
		limit = leaf.NotAfter.Sub(leaf.NotBefore) * 3 / 10 // cert-manager and Heirloom renew when a third is left
	}
	if left := end.Sub(now); left < limit {
		return warning("%s expires in %s.", what, days(left)).with(describe("serving certificate", leaf)).
			next("It should have been replaced by now. See %s.", certificatePage)
	}
	return ok("%s is valid until %s, for %s, and is signed by the registered CA.", what, end.UTC().Format(time.DateOnly), e.serverName)
}

func pool(certificates []*x509.Certificate) *x509.CertPool {
	all := x509.NewCertPool()
	for _, c := range certificates {
		all.AddCert(c)
	}
	return all
}

func describe(what string, c *x509.Certificate) string {
	hosts := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	from, to := c.NotBefore.UTC().Format(time.DateOnly), c.NotAfter.UTC().Format(time.DateOnly)
	text := fmt.Sprintf("%s: %s, valid from %s to %s", what, c.Subject, from, to)
	if len(hosts) > 0 {
		text += ", for " + strings.Join(hosts, ", ")
	}
	return text
}

func describeAll(what string, all []*x509.Certificate) []string {
	var words []string
	for _, c := range all {
		words = append(words, describe(what, c))
	}
	return words
}

func days(d time.Duration) string {
	if d < 48*time.Hour {
		return d.Round(time.Minute).String()
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
