// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const base = "https://heirloom.example.com/base"

var forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "mutatingwebhookconfigurations"}, ObjectName, errors.New("not yours"))

type configuration = admissionregistrationv1.MutatingWebhookConfiguration

// newRegistrar returns a Registrar and the management cluster that it reads from.
func newRegistrar(t *testing.T) (*Registrar, *apiServer) {
	t.Helper()
	management := newAPIServer(installedWith(t, newCA(t)))
	return &Registrar{
		Management: management, Installed: "heirloom", BaseURL: base, Key: always(key(1)),
	}, management
}

// One write makes a registration equal to the registration of a new workload cluster, however it differs.
func TestChangedRegistrationIsRestored(t *testing.T) {
	for name, change := range map[string]func(r *Registrar, installed, there *configuration){
		"there is another key":                  func(r *Registrar, _, _ *configuration) { r.Key = always(key(2)) },
		"Heirloom is reached under another URL": func(r *Registrar, _, _ *configuration) { r.BaseURL = "https://other.example.com" },
		"the CA certificates were renewed": func(_ *Registrar, installed, _ *configuration) {
			installed.Webhooks[1].ClientConfig.CABundle = newCA(t)
		},
		"the chart has one match condition less": func(_ *Registrar, installed, _ *configuration) { installed.Webhooks[1].MatchConditions = nil },
		"somebody changed the URL": func(_ *Registrar, _, there *configuration) {
			there.Webhooks[0].ClientConfig.URL = ptr.To("https://mallory.example.com")
		},
		"somebody made it fail closed": func(_ *Registrar, _, there *configuration) {
			there.Webhooks[0].FailurePolicy = ptr.To(admissionregistrationv1.Fail)
		},
		"somebody added a match condition that is never true": func(_ *Registrar, _, there *configuration) {
			never := admissionregistrationv1.MatchCondition{Name: "never", Expression: "false"}
			there.Webhooks[0].MatchConditions = append(there.Webhooks[0].MatchConditions, never)
		},
		"somebody took the webhook away": func(_ *Registrar, _, there *configuration) { there.Webhooks = nil },
		"somebody took a label away":     func(_ *Registrar, _, there *configuration) { delete(there.Labels, "app.kubernetes.io/managed-by") },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			registrar, management := newRegistrar(t)
			workload, anew := newAPIServer(), newAPIServer()
			g.Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
			installed, there := &configuration{}, workload.registered(t)
			g.Expect(management.Get(t.Context(), types.NamespacedName{Name: "heirloom"}, installed)).To(Succeed())
			change(registrar, installed, there)
			g.Expect(management.Update(t.Context(), installed)).To(Succeed())
			g.Expect(workload.Update(t.Context(), there)).To(Succeed())

			workload.writes = nil
			for range 2 {
				g.Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
			}
			g.Expect(workload.writes).To(Equal([]string{"update"}), "one write is enough")
			g.Expect(registrar.Ensure(t.Context(), anew, prod)).Error().To(Succeed())
			got, want := workload.registered(t), anew.registered(t)
			g.Expect([]any{got.Labels, got.Webhooks}).To(Equal([]any{want.Labels, want.Webhooks}))
		})
	}
}

// Some clouds write a namespaceSelector into every configuration, API servers write an empty selector, and people add labels. Heirloom
// keeps all of them.
func TestForeignFieldsOfARegistrationStay(t *testing.T) {
	g := NewWithT(t)
	registrar, _ := newRegistrar(t)
	workload := newAPIServer()
	g.Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
	registered := workload.registered(t)
	registered.Labels["team"] = "a"
	registered.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	registered.Webhooks = append(registered.Webhooks, *registered.Webhooks[0].DeepCopy())
	registered.Webhooks[1].Name = "theirs.example.com"
	g.Expect(workload.Update(t.Context(), registered)).To(Succeed())

	workload.writes = nil
	g.Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
	g.Expect(workload.writes).To(BeEmpty())

	registrar.Key = always(key(2))
	g.Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
	changed := workload.registered(t)
	g.Expect(leadsTo(changed)).To(Equal(base + Path(key(2), prod)))
	g.Expect(changed.Labels).To(HaveKeyWithValue("team", "a"))
	g.Expect(changed.Webhooks[0].NamespaceSelector).To(Equal(registered.Webhooks[0].NamespaceSelector))
	g.Expect(changed.Webhooks).To(HaveLen(2))
}

func TestARegistrationIsRemoved(t *testing.T) {
	for _, tc := range []struct {
		name string
		url  string
		gone bool
	}{
		{name: "as it was made", url: base + Path(key(1), prod), gone: true},
		{name: "made with a key that nobody knows any more", url: base + Path(key(9), prod), gone: true},
		{name: "not where it was made when Heirloom was reached under another URL", url: "https://old.example.com" + Path(key(1), prod)},
		{name: "made for a Cluster of the same name that is gone", url: base + Path(key(1), Identity{NamespacedName: prod.NamespacedName, UID: "gone"}), gone: true},
		{name: "not where it leads to another management cluster, which the Cluster has moved to", url: "https://new.example.com" + Path(key(9), prod)},
		{name: "not where it is another Cluster's", url: base + Path(key(1), named("fleet", "test"))},
		{name: "not where it leads somewhere else", url: "https://new.example.com/webhook"},
		{name: "not where somebody has emptied it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			registrar, _ := newRegistrar(t)
			there := &configuration{ObjectMeta: metav1.ObjectMeta{Name: ObjectName}}
			if tc.url != "" {
				there.Webhooks = []admissionregistrationv1.MutatingWebhook{{
					Name: WebhookName, ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To(tc.url)},
				}}
			}
			workload := newAPIServer(there)
			removed, err := registrar.Remove(t.Context(), workload, prod)
			g.Expect(removed).To(Equal(tc.gone))
			if tc.gone {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(workload.registered(t)).To(BeNil())
				return
			}
			g.Expect(err).To(MatchError(ErrForeign))
			g.Expect(workload.registered(t)).NotTo(BeNil())
			g.Expect(workload.writes).To(BeEmpty())
		})
	}
}

// A workload cluster whose Cluster was deleted and created again under the same name gets the path of the new Cluster.
func TestRecreatedClusterGetsANewPath(t *testing.T) {
	Expect := NewWithT(t).Expect
	registrar, _ := newRegistrar(t)
	workload, again := newAPIServer(), prod
	again.UID = "again"
	Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
	Expect(registrar.Ensure(t.Context(), workload, again)).To(BeTrue())
	Expect(leadsTo(workload.registered(t))).To(And(Equal(base+Path(key(1), again)), Not(Equal(base+Path(key(1), prod)))))
}

func TestRemovingNothing(t *testing.T) {
	registrar, _ := newRegistrar(t)
	workload := newAPIServer()
	NewWithT(t).Expect(registrar.Remove(t.Context(), workload, prod)).To(BeFalse())
	NewWithT(t).Expect(workload.writes).To(BeEmpty())

	NewWithT(t).Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
	workload.fail["delete"] = apierrors.NewNotFound(schema.GroupResource{}, ObjectName)
	NewWithT(t).Expect(registrar.Remove(t.Context(), workload, prod)).To(BeFalse(), "another client was faster")
}

// A removal deletes only the version that it has read: in between, the Cluster may move to another management cluster.
func TestOnlySeenRegistrationsAreRemoved(t *testing.T) {
	g := NewWithT(t)
	registrar, _ := newRegistrar(t)
	workload := newAPIServer()
	g.Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
	workload.before["delete"] = func() {
		registered := workload.registered(t)
		registered.Webhooks[0].ClientConfig.URL = ptr.To("https://new.example.com" + Path(key(9), prod))
		g.Expect(workload.Update(t.Context(), registered)).To(Succeed())
	}
	g.Expect(registrar.Remove(t.Context(), workload, prod)).Error().To(MatchError(apierrors.IsConflict, "IsConflict"))
	g.Expect(leadsTo(workload.registered(t))).To(HavePrefix("https://new.example.com/"))
}

// If a part is missing, nothing is registered, and an existing registration stays until it is removed; its removal does not need the
// installed configuration. The error gives the reason and wraps the API server's error: the loop does not report a forbidden read of a
// registration that it has not set up.
func TestIncompleteRegistrationsAreNotWritten(t *testing.T) {
	const installed, written = "getting the installed webhook configuration: ", "writing the webhook configuration of the workload cluster: "
	for _, tc := range []struct {
		name    string
		change  func(r *Registrar, management, workload *apiServer)
		problem string
		keeps   bool
	}{
		{name: "without a key", change: func(r *Registrar, _, _ *apiServer) { r.Key = always(nil) }, problem: "the key for the webhook's path does not exist yet"},
		{name: "without the installed configuration", change: func(r *Registrar, _, _ *apiServer) { r.Installed = "gone" }, problem: installed},
		{name: "without CA certificates", change: func(r *Registrar, _, _ *apiServer) { r.Management = newAPIServer(installedWith(t, nil)) }, problem: "no caBundle (yet)"},
		{name: "while the management cluster does not answer", problem: installed, keeps: true,
			change: func(_ *Registrar, m, _ *apiServer) { m.fail["get"] = forbidden }},
		{name: "while the workload cluster does not answer", problem: written, keeps: true,
			change: func(_ *Registrar, _, w *apiServer) { w.fail["get"] = forbidden }},
		{name: "while the workload cluster takes no writes", problem: written, keeps: true,
			change: func(_ *Registrar, _, w *apiServer) { w.fail["create"], w.fail["update"] = forbidden, forbidden }},
	} {
		for _, registered := range []bool{false, true} {
			t.Run(fmt.Sprint(tc.name, "/registered before: ", registered), func(t *testing.T) {
				g := NewWithT(t)
				registrar, management := newRegistrar(t)
				workload := newAPIServer()
				if registered {
					g.Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
				}
				before := workload.registered(t)
				registrar.Key = always(key(2))
				tc.change(registrar, management, workload)
				_, err := registrar.Ensure(t.Context(), workload, prod)
				g.Expect(err).To(MatchError(ContainSubstring(tc.problem)))
				g.Expect(errors.Is(err, forbidden)).To(Equal(tc.keeps))
				clear(workload.fail)
				g.Expect(workload.registered(t)).To(Equal(before))
				g.Expect(registrar.Remove(t.Context(), workload, prod)).To(Equal(registered))
			})
		}
	}
}

func TestFailedRemovalIsReported(t *testing.T) {
	for verb, problem := range map[string]string{"get": "getting the webhook configuration", "delete": "deleting the webhook configuration"} {
		g := NewWithT(t)
		registrar, _ := newRegistrar(t)
		workload := newAPIServer()
		g.Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
		workload.fail[verb] = forbidden
		_, err := registrar.Remove(t.Context(), workload, prod)
		g.Expect(err).To(And(MatchError(forbidden), MatchError(ContainSubstring(problem+" of the workload cluster: "))))
	}
}
