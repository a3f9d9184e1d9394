// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/config"
)

// neighbour is the namespace of the other Heirloom.
const neighbour = "tenant"

// shared is the scenery with two Heirlooms: that of namespace fleet with a certificate of its own, and other, that of namespace tenant, with
// one that is mounted.
func shared(s *scenery) {
	other := newScenery(s.t)
	other.registerIn(neighbour)
	other.mutating.Name, other.validating.Name = "other", "other"
	for i := range other.mutating.Webhooks {
		other.mutating.Webhooks[i].ClientConfig.Service.Namespace = neighbour
	}
	for i := range other.validating.Webhooks {
		other.validating.Webhooks[i].ClientConfig.Service.Namespace = neighbour
	}
	other.flag("--namespace=" + neighbour)
	for _, object := range []metav1.Object{other.deployment, other.service, other.secret} {
		object.SetNamespace(neighbour)
	}
	other.deployment.Name = "other"
	ca := newCA(s.t, now().AddDate(-1, 0, 0), now().AddDate(9, 0, 0))
	other.secret.Data[corev1.TLSCertKey] = ca.sign(s.t, now().AddDate(0, 0, -30), now().AddDate(0, 0, 60), "heirloom-webhook.tenant.svc")
	for i := range other.mutating.Webhooks {
		other.mutating.Webhooks[i].ClientConfig.CABundle = ca.pem()
	}
	for i := range other.validating.Webhooks {
		other.validating.Webhooks[i].ClientConfig.CABundle = ca.pem()
	}
	other.lease = lease(neighbour, neighbour, "other-7c1a")
	s.more = append(s.more, other.mutating, other.validating, other.deployment, other.service, other.secret, other.lease)

	s.registerIn("fleet")
	s.flag("--namespace=fleet", "--webhook-cert-secret=heirloom-system/heirloom-webhook-cert", "--webhook-configuration=heirloom",
		"--webhook-cert-dns-names="+serverName)
	s.lease = lease(home, "fleet", "heirloom-5d8f")
}

// othersFlags gives the other of two Heirlooms these flags in place of its own.
func othersFlags(s *scenery, flags ...string) {
	for _, object := range s.more {
		if d, ok := object.(*appsv1.Deployment); ok {
			d.Spec.Template.Spec.Containers[0].Args = flags
		}
	}
}

// lease is that of a leader which watches one namespace.
func lease(namespace, watched, holder string) *coordinationv1.Lease {
	c := &config.Config{}
	c.Namespace = watched
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.LeaderElectionID()},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(holder + "_0b1c"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: now().Add(-time.Second)},
		},
	}
}

// Of two Heirlooms that share a management cluster, the one that the settings are about is judged, and the other named.
func TestTwoHeirlooms(t *testing.T) {
	const one, strange = "There are several Heirlooms, and this answer is about heirloom-system/heirloom (others: tenant/other)", "has webhooks of Heirloom too"
	expect(t, "installed", []finding{
		{name: "the first", change: shared, status: OK, message: "Deployment heirloom-system/heirloom: 2 of 2 replicas are available. heirloom-5d8f leads.",
			detail: one},
		{name: "the chosen one", change: func(s *scenery) { shared(s); s.namespace = neighbour }, status: OK,
			message: "Deployment tenant/other: 2 of 2 replicas are available. other-7c1a leads."},
		{name: "the chosen one, which nobody leads", change: func(s *scenery) {
			shared(s)
			s.namespace, s.more = neighbour, s.more[:len(s.more)-1]
		}, status: Failed, message: "there is no Lease tenant/leader-election-heirloom-", next: "HeirloomNotLeading"},
		{name: "the only one that may be read", change: func(s *scenery) { shared(s); s.namespace, s.listed = neighbour, neighbour }, status: OK,
			message: "Deployment tenant/other"},
		{name: "none in the namespace", change: func(s *scenery) { shared(s); s.namespace = "nowhere" }, status: Failed,
			message: "There is no Deployment of Heirloom in namespace nowhere", next: "--heirloom-namespace"},
	})
	expect(t, "registered", []finding{
		{name: "the first", change: shared, status: OK, message: "All 9 webhooks", detail: "MutatingWebhookConfiguration other " + strange},
		{name: "the chosen one", change: func(s *scenery) { shared(s); s.namespace = neighbour }, status: OK, message: "All 9 webhooks",
			detail: "ValidatingWebhookConfiguration heirloom " + strange},
		{name: "the other's are not its own", change: func(s *scenery) { shared(s); withoutWebhooks(s) }, status: Failed, message: wrongly,
			detail: "There is no MutatingWebhookConfiguration with webhooks of Heirloom.", next: "helm upgrade"},
		{name: "names that no setting knows", change: func(s *scenery) { s.mutating.Name, s.validating.Name = "renamed", "renamed" }, status: OK,
			message: "All 9 webhooks"},
	})
	expect(t, "certificates", []finding{
		{name: "the first", change: shared, status: OK, message: "Secret heirloom-system/heirloom-webhook-cert is valid"},
		{name: "the chosen one", change: func(s *scenery) { shared(s); s.namespace = neighbour }, status: OK,
			message: "Secret tenant/heirloom-webhook-cert is valid"},
	})
	expect(t, "others", []finding{
		{name: "another Heirloom undoes nothing", change: shared, status: OK, message: "No other webhook comes after Heirloom's"},
		{name: "one with a filter is no less apart", change: func(s *scenery) { shared(s); othersFlags(s, "--watch-filter=blue") }, status: OK,
			message: "No other webhook comes after Heirloom's"},
		{name: "another that handles all objects", change: func(s *scenery) { shared(s); othersFlags(s, "--additional-sync-machine-labels=x") },
			status: Warning, message: "may change what Heirloom gives", detail: "Deployment tenant/other has neither --namespace nor --watch-filter",
			next: "HeirloomDrift"},
		{name: "this one handles all objects", change: func(s *scenery) { shared(s); s.flag("--namespace=") }, status: Warning,
			message: "may change what Heirloom gives", detail: "Deployment heirloom-system/heirloom has neither", next: "HeirloomDrift"},
		{name: "the only one may handle all objects", status: OK, message: "No other webhook comes after Heirloom's"},
	})
}

// A user who may list Deployments only where Cluster API usually is learns as much about it as one who may everywhere.
func TestClusterAPIWhereItUsuallyIs(t *testing.T) {
	s := newScenery(t)
	s.namespace, s.listed = home, "capi-system"
	got := s.check("cluster-api")
	NewWithT(t).Expect(got.Message).To(Equal("The server's settings are not known."), "not that Cluster API's Deployments could not be read")
}
