// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
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

type configuration = admissionregistrationv1.MutatingWebhookConfiguration

// newRegistrar returns a Registrar and the management cluster that it reads from.
func newRegistrar(t *testing.T) (*Registrar, *apiServer) {
	t.Helper()
	management := newAPIServer(installedWith(t, newCA(t)))
	return &Registrar{
		Management: management, Installed: "heirloom", BaseURL: base, Key: always(key(1)),
	}, management
}

func TestWhatDiffersIsPutRight(t *testing.T) {
	for _, tc := range []struct {
		name string
		// there changes what is in the workload cluster, here what it is made from.
		there func(*configuration)
		here  func(*testing.T, *Registrar, *configuration)
		check func(Gomega, *configuration)
	}{
		{
			name:  "there is another key",
			here:  func(_ *testing.T, r *Registrar, _ *configuration) { r.Key = always(key(2)) },
			check: func(g Gomega, c *configuration) { g.Expect(leadsTo(c)).To(Equal(base + Path(key(2), prod))) },
		},
		{
			name: "Heirloom is reached under another URL",
			here: func(_ *testing.T, r *Registrar, _ *configuration) { r.BaseURL = "https://other.example.com" },
			check: func(g Gomega, c *configuration) {
				g.Expect(leadsTo(c)).To(HavePrefix("https://other.example.com/workload/fleet/"))
			},
		},
		{
			name: "the CA certificates were renewed",
			here: func(_ *testing.T, _ *Registrar, c *configuration) {
				c.Webhooks[1].ClientConfig.CABundle = append(newCA(t), newCA(t)...)
			},
			check: func(g Gomega, c *configuration) {
				g.Expect(string(c.Webhooks[0].ClientConfig.CABundle)).To(HaveSuffix("END CERTIFICATE-----\n"))
			},
		},
		{
			name: "the chart has one match condition less",
			here: func(_ *testing.T, _ *Registrar, c *configuration) {
				c.Webhooks[1].MatchConditions = c.Webhooks[1].MatchConditions[:1]
			},
			check: func(g Gomega, c *configuration) { g.Expect(c.Webhooks[0].MatchConditions).To(HaveLen(1)) },
		},
		{
			name:  "somebody changed the URL",
			there: func(c *configuration) { c.Webhooks[0].ClientConfig.URL = ptr.To("https://mallory.example.com") },
			check: func(g Gomega, c *configuration) { g.Expect(leadsTo(c)).To(Equal(base + Path(key(1), prod))) },
		},
		{
			name:  "somebody made it fail closed",
			there: func(c *configuration) { c.Webhooks[0].FailurePolicy = ptr.To(admissionregistrationv1.Fail) },
			check: func(g Gomega, c *configuration) {
				g.Expect(*c.Webhooks[0].FailurePolicy).To(Equal(admissionregistrationv1.Ignore))
			},
		},
		{
			name: "somebody added a match condition that is never true",
			there: func(c *configuration) {
				never := admissionregistrationv1.MatchCondition{Name: "never", Expression: "false"}
				c.Webhooks[0].MatchConditions = append(c.Webhooks[0].MatchConditions, never)
			},
			check: func(g Gomega, c *configuration) {
				g.Expect(c.Webhooks[0].MatchConditions).NotTo(ContainElement(HaveField("Name", "never")))
				g.Expect(c.Webhooks[0].MatchConditions).NotTo(BeEmpty())
			},
		},
		{
			name:  "somebody took the webhook away",
			there: func(c *configuration) { c.Webhooks = nil },
			check: func(g Gomega, c *configuration) { g.Expect(leadsTo(c)).To(Equal(base + Path(key(1), prod))) },
		},
		{
			name:  "somebody took a label away",
			there: func(c *configuration) { delete(c.Labels, "app.kubernetes.io/managed-by") },
			check: func(g Gomega, c *configuration) {
				g.Expect(c.Labels).To(HaveKeyWithValue("app.kubernetes.io/managed-by", "heirloom"))
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			registrar, management := newRegistrar(t)
			workload := newAPIServer()
			g.Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
			if tc.there != nil {
				registered := workload.registered(t)
				tc.there(registered)
				g.Expect(workload.Update(t.Context(), registered)).To(Succeed())
			}
			if tc.here != nil {
				from := &configuration{}
				g.Expect(management.Get(t.Context(), types.NamespacedName{Name: "heirloom"}, from)).To(Succeed())
				tc.here(t, registrar, from)
				g.Expect(management.Update(t.Context(), from)).To(Succeed())
			}

			workload.writes = nil
			g.Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
			tc.check(g, workload.registered(t))
			g.Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
			g.Expect(workload.writes).To(Equal([]string{"update"}), "once is enough")
		})
	}
}

// Some clouds write a namespaceSelector into every configuration, API servers write an empty one, and people add labels.
// None of that is fought over.
func TestWhatOthersAddIsLeftThere(t *testing.T) {
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

// An API server that knows the path of a Cluster that was deleted since is told that of the Cluster which has its name now.
func TestAClusterThatIsMadeAnewGetsANewPath(t *testing.T) {
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
	NewWithT(t).Expect(registrar.Remove(t.Context(), workload, prod)).To(BeFalse(), "somebody else was faster")
}

// What was looked at is what is deleted: between the two the Cluster may move to another management cluster.
func TestOnlyWhatWasSeenIsRemoved(t *testing.T) {
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

func TestNoRegistrationIsMadeFromHalfOfWhatItNeeds(t *testing.T) {
	broken := errors.New("broken")
	for _, tc := range []struct {
		name    string
		change  func(r *Registrar, management, workload *apiServer)
		problem string
	}{
		{name: "without a key", change: func(r *Registrar, _, _ *apiServer) { r.Key = always(nil) }, problem: "the key for the webhook's path does not exist yet"},
		{name: "without the installed configuration", change: func(r *Registrar, _, _ *apiServer) { r.Installed = "gone" }, problem: "getting the installed webhook configuration"},
		{name: "without CA certificates", change: func(r *Registrar, _, _ *apiServer) { r.Management = newAPIServer(installedWith(t, nil)) }, problem: "no caBundle (yet)"},
		{name: "while the management cluster does not answer", change: func(_ *Registrar, m, _ *apiServer) { m.fail["get"] = broken }, problem: "getting the installed webhook configuration: broken"},
		{name: "while the workload cluster does not answer", change: func(_ *Registrar, _, w *apiServer) { w.fail["get"] = broken }, problem: "writing the webhook configuration of the workload cluster: broken"},
		{name: "while the workload cluster takes no writes", change: func(_ *Registrar, _, w *apiServer) { w.fail["create"] = broken }, problem: "writing the webhook configuration of the workload cluster: broken"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			registrar, management := newRegistrar(t)
			workload := newAPIServer()
			tc.change(registrar, management, workload)
			g.Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(MatchError(ContainSubstring(tc.problem)))
			delete(workload.fail, "get")
			g.Expect(workload.registered(t)).To(BeNil())
		})
	}
}

func TestARemovalThatFailsSaysSo(t *testing.T) {
	for verb, problem := range map[string]string{"get": "getting the webhook configuration", "delete": "deleting the webhook configuration"} {
		g := NewWithT(t)
		registrar, _ := newRegistrar(t)
		workload := newAPIServer()
		g.Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
		workload.fail[verb] = errors.New("broken")
		g.Expect(registrar.Remove(t.Context(), workload, prod)).Error().To(MatchError(ContainSubstring(problem + " of the workload cluster: broken")))
	}
}
