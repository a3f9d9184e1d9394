// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	paths "k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// finding is a change of the scenery, and what a check makes of it.
type finding struct {
	name   string
	change func(*scenery)
	status Status
	// message, detail and next are parts of the result.
	message, detail, next string
}

func expect(t *testing.T, check string, findings []finding) {
	t.Helper()
	for _, f := range findings {
		t.Run(f.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			s := newScenery(t)
			if f.change != nil {
				f.change(s)
			}
			got := s.check(check)
			Expect(got.Status).To(Equal(f.status), "%+v", got)
			Expect(got.Message).To(ContainSubstring(f.message))
			if f.detail == "" {
				Expect(got.Details).To(BeEmpty())
			} else {
				Expect(got.Details).To(ContainElement(ContainSubstring(f.detail)))
			}
			if f.next == "" {
				Expect(got.Next).To(BeEmpty())
			} else {
				Expect(got.Next).To(ContainSubstring(f.next))
			}
		})
	}
}

func withoutWebhooks(s *scenery) { s.gone = append(s.gone, "mutating", "validating") }

func TestInstalled(t *testing.T) {
	const gone, replicas = "There is no Deployment of Heirloom", "Deployment heirloom-system/heirloom: 2 of 2 replicas are available. "
	expect(t, "installed", []finding{
		{name: "it is", status: OK, message: replicas + "heirloom-5d8f leads."},
		{name: "not at all", change: func(s *scenery) { withoutWebhooks(s); s.gone = append(s.gone, "deployment") },
			status: Failed, message: "Heirloom is not installed", next: "docs/getting-started.md#install"},
		{name: "webhooks without a program", change: func(s *scenery) { s.gone = []string{"deployment"} }, status: Failed, message: gone,
			next: "helm upgrade"},
		{name: "elsewhere", change: func(s *scenery) { s.gone = []string{"deployment"}; s.byURL() }, status: Unknown,
			message: gone + ": its webhooks are called by URL", next: "mutation"},
		{name: "labelled by nobody, but behind the Service", change: func(s *scenery) { delete(s.deployment.Labels, "app.kubernetes.io/part-of") },
			status: OK, message: replicas + "heirloom-5d8f leads."},
		{name: "scaled down", change: func(s *scenery) { s.deployment.Spec.Replicas = new(int32(0)) }, status: Failed, message: "scaled to 0",
			next: "scale deployment heirloom"},
		{name: "no replica", change: func(s *scenery) { s.deployment.Status.AvailableReplicas = 0 }, status: Failed, message: "none of 2 replicas",
			next: "describe pods"},
		{name: "one replica", change: func(s *scenery) { s.deployment.Status.AvailableReplicas = 1 }, status: Warning, message: "1 of 2 replicas",
			next: "describe pods"},
		{name: "an update", change: func(s *scenery) { s.deployment.Status.UpdatedReplicas = 1 }, status: Warning,
			message: "1 of 2 replicas are new", next: "rollout status"},
		{name: "nobody leads", change: func(s *scenery) { s.lease.Spec.HolderIdentity = new("") }, status: Failed,
			message: replicas + "None of them leads: Lease heirloom-system/leader-election-heirloom has no holder.", next: "HeirloomNotLeading"},
		{name: "the leader is gone", change: func(s *scenery) { s.lease.Spec.RenewTime = &metav1.MicroTime{Time: now().Add(-2 * time.Minute)} },
			status: Failed, message: "heirloom-5d8f no longer renews", next: "HeirloomNotLeading"},
		{name: "a clock that differs", change: func(s *scenery) { s.lease.Spec.RenewTime = &metav1.MicroTime{Time: now().Add(-time.Minute)} },
			status: OK, message: "leads"},
		{name: "no Lease", change: func(s *scenery) { s.gone = []string{"lease"} }, status: Failed, message: "None has ever led",
			next: "HeirloomNotLeading"},
		{name: "another filter, another Lease", change: func(s *scenery) { s.flag("--watch-filter=blue") }, status: Failed,
			message: "leader-election-heirloom-", next: "HeirloomNotLeading"},
		{name: "no election", change: func(s *scenery) { s.flag("--leader-elect=false"); s.gone = []string{"lease"} }, status: OK,
			message: "There is no leader election."},
		{name: "no right to read the Lease", change: func(s *scenery) { s.denied = []string{"Lease"} }, status: Unknown,
			message: "Whether one leads is not known"},
		{name: "no right to read Deployments", change: func(s *scenery) { s.denied = []string{"DeploymentList"} }, status: Unknown,
			message: "The Deployments could not be read"},
	})
}

// flag adds a flag of the server.
func (s *scenery) flag(flags ...string) {
	manager := &s.deployment.Spec.Template.Spec.Containers[0]
	manager.Args = append(manager.Args, flags...)
}

// byURL registers the webhooks by URL.
func (s *scenery) byURL() {
	at := func(c *admissionv1.WebhookClientConfig) {
		c.URL, c.Service = new("https://heirloom.example.com/base"+*c.Service.Path), nil
	}
	for i := range s.mutating.Webhooks {
		at(&s.mutating.Webhooks[i].ClientConfig)
	}
	for i := range s.validating.Webhooks {
		at(&s.validating.Webhooks[i].ClientConfig)
	}
}

func TestVersions(t *testing.T) {
	expect(t, "versions", []finding{
		{name: "they fit", status: OK, message: "Plugin v0.3.1, server v0.3.0, Cluster API v1.14.2, Kubernetes v1.34.1."},
		{name: "a build of no release", change: func(s *scenery) { s.plugin = "(devel)" }, status: OK, message: "Plugin (devel), server v0.3.0"},
		{name: "another minor", change: func(s *scenery) { s.plugin = "v0.4.0" }, status: Warning, message: "differ",
			detail: "the plugin is v0.4.0 and the server v0.3.0", next: "plugin of the server's version"},
		{name: "an old Cluster API", change: func(s *scenery) { s.core.Spec.Template.Spec.Containers[0].Image = "x:v1.7.3" }, status: Failed,
			message: "do not go together",
			detail:  "Cluster API is v1.7.3, and Heirloom needs v1.11.0 or later", next: "docs/support.md"},
		{name: "an old Kubernetes", change: func(s *scenery) { s.kube = "v1.29.9" }, status: Failed, message: "do not go together",
			detail: "Kubernetes is v1.29.9", next: "docs/support.md"},
		{name: "a distribution's own number", change: func(s *scenery) { s.kube = "v1.30.2-eks-db838b0" }, status: OK,
			message: "v1.30.2-eks-db838b0"},
		{name: "no answer", change: func(s *scenery) { s.kube = "" }, status: Unknown, message: "Plugin v0.3.1",
			detail: "not known: Kubernetes' version: no answer", next: "right"},
		{name: "no rights", change: func(s *scenery) { s.denied = []string{"DeploymentList"} }, status: Unknown,
			message: "Plugin v0.3.1, Kubernetes", detail: "not known: the server's version", next: "right"},
	})
}

func TestProbes(t *testing.T) {
	refused := func(s *scenery) { s.refused = errors.New("no quota") }
	mute := func(s *scenery) { s.mute = true }
	// down is how an API server answers if a webhook that fails closed does not.
	down := func(webhook string) func(*scenery) {
		return func(s *scenery) {
			s.refused = apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: failed to call webhook: connection refused", webhook))
		}
	}
	nothing := func(s *scenery) {
		s.md.Spec.Template, s.ms.Spec.Template = clusterv1.MachineTemplateSpec{}, clusterv1.MachineTemplateSpec{}
	}
	expect(t, "mutation", []finding{
		{name: "it answers", status: OK, message: "would inherit label"},
		{name: "it does not", change: mute, status: Failed, message: "A Machine of MachineSet fleet/ms should inherit label",
			next: "HeirloomWebhooksNotCalled"},
		{name: "it cannot be called", change: down("machines.heirloom.dev"), status: Failed, message: "failed calling webhook",
			next: "HeirloomWebhooksNotCalled"},
		{name: "another cannot be called", change: down("machines.example.com"), status: Unknown, message: "failed calling webhook"},
		{name: "nothing to inherit", change: nothing, status: Unknown, message: nobody, next: "Declare a label"},
		{name: "paused", change: func(s *scenery) { s.cluster.Spec.Paused = new(true) }, status: Unknown, message: nobody, next: "Declare"},
		{name: "refused by another", change: refused, status: Unknown, message: "could not be created in a dry run: no quota"},
		{name: "no rights", change: func(s *scenery) { s.denied = []string{"UnstructuredList"} }, status: Unknown, message: "listing MachineSets"},
	})
	expect(t, "validation", []finding{
		{name: "it answers", status: OK, message: "is refused"},
		{name: "it does not", change: mute, status: Failed, message: "was accepted", next: "HeirloomWebhooksNotCalled"},
		{name: "refused by another", change: refused, status: Unknown, message: "no quota"},
		{name: "it cannot be called", change: down("taints.heirloom.dev"), status: Failed, message: "failed calling webhook",
			next: "HeirloomWebhooksNotCalled"},
		{name: "another cannot be called", change: down("machines.example.com"), status: Unknown, message: "failed calling webhook"},
		{name: "it refuses dry runs", change: func(s *scenery) {
			s.refused = apierrors.NewBadRequest(`admission webhook "taints.heirloom.dev" does not support dry run`)
		}, status: Unknown, message: "does not support dry run"},
		{name: "it needs no MachineSet", change: nothing, status: OK, message: "is refused"},
	})
}

// The taint of the dry run is one that the webhook refuses.
func TestTheProbesTaintIsReserved(t *testing.T) {
	declared := map[string]string{taint.AlwaysAnnotation: reserved}
	NewWithT(t).Expect(taint.ValidateAnnotations(paths.NewPath("metadata", "annotations"), taint.Worker, declared, nil)).NotTo(BeEmpty())
}
