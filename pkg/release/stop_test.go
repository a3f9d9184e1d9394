// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// configurations are the webhook configurations of Heirloom, and those of somebody else.
func configurations() []client.Object {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	return []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: named("heirloom")},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named("heirloom")},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: named("other")},
	}
}

const (
	deletesMutating   = "delete MutatingWebhookConfiguration heirloom"
	deletesValidating = "delete ValidatingWebhookConfiguration heirloom"
	saysDeleted       = "mutatingwebhookconfiguration.admissionregistration.k8s.io/heirloom deleted\nvalidatingwebhookconfiguration.admissionregistration.k8s.io/heirloom deleted\n"
	saysDeletedDry    = "mutatingwebhookconfiguration.admissionregistration.k8s.io/heirloom deleted (dry run)\nvalidatingwebhookconfiguration.admissionregistration.k8s.io/heirloom deleted (dry run)\n"
	saysReleased      = "machine.cluster.x-k8s.io/m released in namespace ns\n"
	saysReleasedDry   = "machine.cluster.x-k8s.io/m released in namespace ns (dry run)\n  .metadata.labels.team\n"
)

// Webhooks would bring back what is released. So nothing is done while they are there, unless they are to be deleted.
func TestStoppingTheWebhooks(t *testing.T) {
	for _, tc := range []struct {
		name    string
		options Options
		fail    map[string]error
		writes  []string
		out     string
		problem string
	}{
		{name: "it refuses to begin", problem: `the webhook configurations "heirloom" are still there, so that what is released now would be inherited again: ` +
			`stop Heirloom first, and delete them or use --delete-webhook-configurations`},
		{name: "it deletes them and goes on", options: Options{DeleteWebhookConfigurations: true},
			writes: []string{deletesMutating, deletesValidating, "patch Machine m"}, out: saysDeleted + saysReleased},
		{name: "it deletes them and does no more", options: Options{DeleteWebhookConfigurations: true, OnlyWebhookConfigurations: true},
			writes: []string{deletesMutating, deletesValidating}, out: saysDeleted},
		{name: "a dry run leaves them and goes on", options: Options{DryRun: true}, out: saysReleasedDry},
		{name: "a dry run says that they would go", options: Options{DryRun: true, DeleteWebhookConfigurations: true}, out: saysDeletedDry + saysReleasedDry},
		{name: "they may not be read", fail: map[string]error{"get ValidatingWebhookConfiguration": forbidden}, options: Options{DeleteWebhookConfigurations: true},
			writes: []string{deletesMutating}, out: saysDeleted[:len(saysDeleted)/2], problem: "looking for Heirloom's webhook configurations: "},
		{name: "they may not be deleted", fail: map[string]error{"delete MutatingWebhookConfiguration": forbidden}, options: Options{DeleteWebhookConfigurations: true},
			problem: "deleting Heirloom's webhook configurations: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			management := holds(served, append(configurations(), teamed(t, core, "Machine", "m"))...)
			for request, err := range tc.fail {
				management.fail[request] = err
			}
			r := releasing(management, tc.options)
			err := r.Run(t.Context())
			if tc.problem == "" {
				Expect(err).NotTo(HaveOccurred())
				Expect(r.out.String()).To(Equal(tc.out))
			} else {
				Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			}
			Expect(management.written()).To(Equal(tc.writes))
		})
	}
}

func TestWebhookConfigurationsThatSomebodyElseDeletes(t *testing.T) {
	Expect := NewWithT(t).Expect
	management := holds(served, append(configurations(), teamed(t, core, "Machine", "m"))...)
	management.before["delete MutatingWebhookConfiguration"] = func() {
		Expect(management.others.Delete(t.Context(), configurations()[0])).To(Succeed())
	}
	r := releasing(management, Options{DeleteWebhookConfigurations: true})
	Expect(r.Run(t.Context())).To(Succeed())
	Expect(management.written()).To(Equal([]string{deletesValidating, "patch Machine m"}))
}

// A configuration that is on its way out already is left to go.
func TestWhatIsBeingDeletedIsNotDeletedAgain(t *testing.T) {
	Expect := NewWithT(t).Expect
	going := configurations()[0]
	going.SetFinalizers([]string{"example.com/held"})
	management := holds(served, going)
	Expect(management.others.Delete(t.Context(), going)).To(Succeed())
	r := releasing(management, Options{DeleteWebhookConfigurations: true})
	Expect(r.Run(t.Context())).To(Succeed())
	Expect(management.written()).To(BeEmpty())
	Expect(r.out.String()).To(BeEmpty())
}

func TestARunThatIsCutShortSaysSo(t *testing.T) {
	Expect := NewWithT(t).Expect
	management := holds(served, teamed(t, core, "Machine", "m"))
	ctx, cancel := context.WithCancel(t.Context())
	management.before["get Machine"] = cancel
	Expect(releasing(management, Options{}).Run(ctx)).To(MatchError(context.Canceled))
	Expect(management.written()).To(BeEmpty())
}
