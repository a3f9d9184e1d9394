// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

// again signs the serving certificate anew, by days before and after now.
func again(t *testing.T, from, to int, host string) func(*scenery) {
	return func(s *scenery) {
		ca := newCA(t, now().AddDate(-1, 0, 0), now().AddDate(9, 0, 0))
		s.signed(ca, now().AddDate(0, 0, from), now().AddDate(0, 0, to), host)
		s.register(ca.pem())
	}
}

func TestCertificates(t *testing.T) {
	const refused, page = "is refused by API servers: ", "HeirloomCertificateExpiring"
	byHand := func(change func(*scenery)) func(*scenery) {
		return func(s *scenery) { change(s); s.secret.Annotations = nil }
	}
	served := func(days int) func(*scenery) {
		return func(s *scenery) {
			again(t, -30, days, "heirloom.example.com")(s)
			s.served, _ = cert.ParseCertsPEM(s.secret.Data[corev1.TLSCertKey])
			s.byURL()
			s.gone = []string{"deployment", "secret"}
		}
	}
	expect(t, "certificates", []finding{
		{name: "valid", status: OK, message: "Secret heirloom-system/heirloom-webhook-cert is valid until 2026-07-31, for " + serverName},
		{name: "no caBundle", change: webhook(func(w *hook) { w.ClientConfig.CABundle = nil }), status: Failed,
			message: "has no caBundle", next: "cainjector"},
		{name: "no caBundle that is one", change: webhook(func(w *hook) { w.ClientConfig.CABundle = []byte("x") }),
			status: Failed, message: "cannot be read", next: "docs/certificates.md"},
		{name: "expired", change: again(t, -90, -1, serverName), status: Failed, message: refused + "certificate has expired",
			detail: "valid from 2026-03-03 to 2026-05-31, for " + serverName, next: page},
		{name: "of tomorrow", change: again(t, 1, 90, serverName), status: Failed, message: refused + "certificate has expired or is not yet valid",
			detail: "serving certificate", next: page},
		{name: "by another CA", change: func(s *scenery) { s.register(newCA(t, now().AddDate(-1, 0, 0), now().AddDate(1, 0, 0)).pem()) },
			status:  Failed,
			message: refused + "certificate signed by unknown authority", detail: "CA of the webhooks: CN=ca", next: page},
		{name: "for another host", change: again(t, -30, 60, "other.svc"), status: Failed, message: refused + "certificate is valid for other.svc",
			detail: "other.svc", next: page},
		{name: "not renewed in time", change: again(t, -70, 20, serverName), status: Warning, message: "expires in 20 days",
			detail: "serving certificate", next: "replaced by now"},
		{name: "to be renewed now", change: again(t, -61, 29, serverName), status: OK, message: "is valid until"},
		{name: "made by hand", change: byHand(again(t, -70, 20, serverName)), status: OK, message: "is valid until"},
		{name: "made by hand, long ago", change: byHand(again(t, -360, 6, serverName)), status: Warning, message: "expires in 6 days",
			detail: "serving certificate", next: "replaced"},
		{name: "no right to read the Secret", change: func(s *scenery) { s.denied = []string{"Secret"} }, status: Unknown,
			message: "the serving certificate could not", next: "right"},
		{name: "no Secret", change: func(s *scenery) { s.gone = []string{"secret"} }, status: Unknown, message: "not found", next: "right"},
		{name: "Heirloom's own", change: func(s *scenery) {
			s.flag("--webhook-cert-secret=heirloom-system/heirloom-webhook-cert", "--webhook-configuration=heirloom", "--webhook-cert-dns-names="+serverName)
			s.deployment.Spec.Template.Spec.Volumes = nil
		}, status: OK, message: "is valid until"},
		{name: "nowhere mounted", change: func(s *scenery) { s.deployment.Spec.Template.Spec.Volumes = nil }, status: Unknown,
			message: "no Deployment mounts", next: "right"},
		{name: "by URL", change: served(60), status: OK, message: "The serving certificate in heirloom.example.com:443 is valid"},
		{name: "by URL, expired", change: served(-1), status: Failed, message: "heirloom.example.com:443 " + refused, detail: "serving certificate",
			next: page},
		{name: "by URL, not from here", change: (*scenery).byURL, status: Unknown,
			message: "connecting to heirloom.example.com:443: connection refused", next: "metric"},
		{name: "a good endpoint after a bad one", change: webhook(func(w *hook) { w.ClientConfig.CABundle = nil }, "machinedeployments.heirloom.dev"),
			status: Failed, message: "has no caBundle", next: "cainjector"},
		{name: "no webhook", change: withoutWebhooks, status: Skipped, message: "No webhook is registered."},
		{name: "no rights", change: func(s *scenery) { s.denied = []string{"ValidatingWebhookConfigurationList"} }, status: Unknown,
			message: "could not be read"},
	})
}

func TestDays(t *testing.T) {
	Expect := NewWithT(t).Expect
	Expect(days(now().AddDate(0, 0, 3).Sub(now()))).To(Equal("3 days"))
	Expect(days(now().AddDate(0, 0, 1).Sub(now()))).To(Equal("24h0m0s"))
}
