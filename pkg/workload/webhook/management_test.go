// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// What was registered is good for as long as nothing better can be made. The error says why.
func TestWhatIsRegisteredStaysWhileNothingElseCanBeMade(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(*configuration)
		problem string
	}{
		{name: "the installed webhook fails closed", change: func(c *configuration) {
			c.Webhooks[1].FailurePolicy = ptr.To(admissionregistrationv1.Fail)
		}, problem: "its failurePolicy is Fail"},
		{name: "the installed webhook waits for long", change: func(c *configuration) { c.Webhooks[1].TimeoutSeconds = ptr.To[int32](30) }, problem: "its timeoutSeconds is 30"},
		{name: "the installed webhook is for more than Nodes", change: func(c *configuration) {
			c.Webhooks[1].Rules[0].Resources = []string{"nodes", "nodes/status"}
		}, problem: "more than CREATE and UPDATE of nodes"},
		{name: "the CA certificates are gone", change: func(c *configuration) { c.Webhooks[1].ClientConfig.CABundle = nil }, problem: "no caBundle (yet)"},
		{name: "the CA certificates are broken", change: func(c *configuration) { c.Webhooks[1].ClientConfig.CABundle = []byte("x") }, problem: "not a PEM certificate"},
		{name: "the webhook for Nodes is not installed any more", change: func(c *configuration) { c.Webhooks = c.Webhooks[:1] }, problem: "has no webhook nodes.heirloom.dev"},
		{name: "nothing is installed any more", problem: "getting the installed webhook configuration"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			registrar, management := newRegistrar(t)
			workload := newAPIServer()
			Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
			before := workload.registered(t)
			from := &configuration{}
			Expect(management.Get(t.Context(), types.NamespacedName{Name: "heirloom"}, from)).To(Succeed())
			if tc.change == nil {
				Expect(management.Delete(t.Context(), from)).To(Succeed())
			} else {
				tc.change(from)
				Expect(management.Update(t.Context(), from)).To(Succeed())
			}

			Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(MatchError(ContainSubstring(tc.problem)))
			Expect(workload.registered(t)).To(Equal(before))
			Expect(workload.writes).To(Equal([]string{"create"}))
			Expect(registrar.Remove(t.Context(), workload, prod)).Error().To(Succeed(), "it takes nothing that is installed")
			Expect(workload.registered(t)).To(BeNil())
		})
	}
}

// The loop does not report on a Cluster that it may not look for what it has not set up. So it must be able to tell.
func TestAForbiddenRequestIsKnownAsSuch(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "mutatingwebhookconfigurations"}, ObjectName, errors.New("not yours"))
	for _, tc := range []struct {
		name, verb string
		do         func(*Registrar, *testing.T, *apiServer) error
	}{
		{name: "to look before it is registered", verb: "get", do: ensure},
		{name: "to register", verb: "update", do: ensure},
		{name: "to look before it is removed", verb: "get", do: remove},
		{name: "to remove", verb: "delete", do: remove},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			registrar, _ := newRegistrar(t)
			workload := newAPIServer()
			Expect(registrar.Ensure(t.Context(), workload, prod)).Error().To(Succeed())
			registrar.Key = always(key(2))
			before := workload.registered(t)
			workload.fail[tc.verb] = forbidden
			Expect(tc.do(registrar, t, workload)).To(And(MatchError(apierrors.IsForbidden, "IsForbidden"), MatchError(ContainSubstring("not yours"))))
			delete(workload.fail, tc.verb)
			Expect(workload.registered(t)).To(Equal(before))
			Expect(tc.do(registrar, t, workload)).To(Succeed(), "once it is allowed")
		})
	}
}

func ensure(r *Registrar, t *testing.T, workload *apiServer) error {
	_, err := r.Ensure(t.Context(), workload, prod)
	return err
}

func remove(r *Registrar, t *testing.T, workload *apiServer) error {
	_, err := r.Remove(t.Context(), workload, prod)
	return err
}
