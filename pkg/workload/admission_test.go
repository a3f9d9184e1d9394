// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

var cluster = webhook.Identity{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "c"}, UID: "c"}

// answer is a way to admit Nodes that returns these values.
type answer struct {
	changed bool
	err     error
	// removed counts the calls of Remove.
	removed int
}

func (a *answer) Ensure(context.Context, client.Client, webhook.Identity) (bool, error) {
	return a.changed, a.err
}

func (a *answer) Remove(context.Context, client.Client, webhook.Identity) (bool, error) {
	a.removed++
	return a.changed, a.err
}

// ensure returns the Events as "<reason> <note>", and the time until the next look.
func ensure(t *testing.T, a *workload.Admission, way string) (told []string, again time.Duration, err error) {
	t.Helper()
	again, err = a.Ensure(t.Context(), nil, cluster, way, func(reason, note string) { told = append(told, reason+" "+note) })
	return told, again, err
}

const (
	registered = "WorkloadAdmissionRegistered The workload cluster's API server now admits Nodes by "
	removed    = "WorkloadAdmissionRemoved The workload cluster's API server no longer admits Nodes by "
	failed     = "WorkloadAdmissionFailed Failed to set up admission of Nodes by "
	fallback   = "WorkloadAdmissionFallback "
)

// unserved is the error if the client's RESTMapper knows no MutatingAdmissionPolicy.
var unserved = &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "MutatingAdmissionPolicy"}}

func TestEnsureReportsItsResult(t *testing.T) {
	broken := apierrors.NewBadRequest("broken")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", errors.New("no rights"))
	for _, tc := range []struct {
		name, way       string
		policy, webhook answer
		told            []string
		fails           error
	}{
		{name: "one is set up", way: "policy", policy: answer{changed: true}, told: []string{registered + "policy"}},
		{name: "the other is taken away", way: "policy", webhook: answer{changed: true}, told: []string{removed + "webhook"}},
		{name: "all are taken away, the first with an error", way: "none", policy: answer{changed: true}, webhook: answer{err: broken}, told: []string{failed + "webhook; the loop still adds inherited entries: broken", removed + "policy"}, fails: broken},
		{name: "it does not belong to this Heirloom", way: "policy", webhook: answer{err: webhook.ErrForeign}},
		{name: "the policy of another Heirloom stays", way: "webhook", policy: answer{err: policy.ErrForeign}},
		{name: "a user without the right to look has not set it up", way: "policy", webhook: answer{err: forbidden}},
		{name: "there is no such way", way: "magic", webhook: answer{changed: true}, told: []string{
			`UnknownWorkloadAdmission Label heirloom.dev/workload-admission: admission by "magic" is not available; see --workload-admission and --workload-webhook-url`, removed + "webhook",
		}},
		{name: "it is not served", way: "policy", policy: answer{err: unserved}, told: []string{
			"NoAdmissionPolicies The workload cluster's API server does not serve MutatingAdmissionPolicies (Kubernetes 1.36 or later does): only the loop adds inherited entries to Nodes",
		}},
		{name: "there is no room for all Machines", way: "policy", policy: answer{changed: true, err: &policy.NoRoomError{Machines: 3}}, told: []string{
			"AdmissionPolicyFull The parameters of the admission policy have no room for 3 Machines: only the loop adds inherited entries to their Nodes", registered + "policy",
		}},
		{name: "it fails, and the other stays", way: "policy", policy: answer{err: broken}, webhook: answer{changed: true}, told: []string{failed + "policy; the loop still adds inherited entries: broken"}, fails: broken},
		{name: "it is refused, and the other stays", way: "policy", policy: answer{err: forbidden}, webhook: answer{changed: true}, told: []string{failed + `policy; the loop still adds inherited entries: things "x" is forbidden: no rights`}, fails: forbidden},
		{name: "one fails after it was set up, and the other stays", way: "policy", policy: answer{changed: true, err: broken}, webhook: answer{changed: true}, told: []string{failed + "policy; the loop still adds inherited entries: broken"}, fails: broken},
		{name: "the connection is lost", way: "policy", policy: answer{err: clustercache.ErrClusterNotConnected}, fails: clustercache.ErrClusterNotConnected},
		{name: "the best way is taken", way: "auto", policy: answer{changed: true}, told: []string{registered + "policy"}},
		{name: "the next one is taken", way: "auto", policy: answer{err: unserved}, webhook: answer{changed: true}, told: []string{registered + "webhook"}},
		{name: "the next one is taken after a refusal", way: "auto", policy: answer{err: forbidden}, told: []string{
			fallback + `Nodes are admitted by webhook. Not by policy: things "x" is forbidden: no rights.`,
		}},
		{name: "there is none", way: "auto", policy: answer{err: unserved}, webhook: answer{err: forbidden}, told: []string{
			fallback + "Only the loop adds inherited entries to new Nodes, a moment after they register: until then, Pods that do not tolerate their taints can be scheduled there. " +
				"To accept this, set the label heirloom.dev/workload-admission=none. " +
				"Not by policy: the workload cluster's API server does not serve MutatingAdmissionPolicies (Kubernetes 1.36 or later does). " +
				`Not by webhook: things "x" is forbidden: no rights.`,
		}},
		{name: "the best way fails", way: "auto", policy: answer{err: broken}, webhook: answer{changed: true}, told: []string{failed + "policy; the loop still adds inherited entries: broken"}, fails: broken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			a := &workload.Admission{Ways: map[string]workload.Way{"policy": &tc.policy, "webhook": &tc.webhook}}
			told, _, err := ensure(t, a, tc.way)
			Expect(told).To(Equal(tc.told))
			if tc.fails == nil {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(tc.fails))
			}
		})
	}
}

// An API server that answers discovery with 500, as some do for a group that they do not know, is no error: there is one Event, and the loop
// does the work until a later attempt succeeds.
func TestUnreachableDiscoveryIsNoError(t *testing.T) {
	undiscovered := fmt.Errorf("looking for policies: %w", &apiutil.ErrResourceDiscoveryFailed{
		schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}: apierrors.NewInternalError(errors.New("not defined")),
	})
	for _, way := range []string{"auto", "none"} {
		Expect := NewWithT(t).Expect
		policies := &answer{err: undiscovered}
		a := &workload.Admission{Ways: map[string]workload.Way{"policy": policies}}
		var events []string
		for range 3 {
			told, again, err := ensure(t, a, way)
			Expect(err).NotTo(HaveOccurred())
			Expect(again).To(Equal(time.Minute))
			events = append(events, told...)
		}
		if way == "auto" {
			Expect(events).To(ConsistOf(ContainSubstring("Not by policy: the workload cluster's API server does not say whether it serves MutatingAdmissionPolicies.")))
		} else {
			Expect(events).To(BeEmpty())
		}
		policies.err = nil
		_, again, err := ensure(t, a, way)
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(BeZero())
	}
}

// After an upgrade of the workload cluster, or with a URL, a better way is possible. The earlier way is removed only after API servers have
// loaded the new way. A way that is no longer possible stays registered: it would not work after a repair otherwise.
func TestNoMomentIsWithoutAWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		policies, webhooks := &answer{err: unserved}, &answer{changed: true}
		a := &workload.Admission{Ways: map[string]workload.Way{"policy": policies}}
		told, again, err := ensure(t, a, "auto")
		Expect(err).NotTo(HaveOccurred())
		Expect(told).To(ConsistOf(And(HavePrefix(fallback+"Only the loop adds"), HaveSuffix("Not by webhook: --workload-webhook-url is not set."))))
		Expect(again).To(BeZero())
		a.Ways["webhook"] = webhooks
		told, _, err = ensure(t, a, "auto")
		Expect(err).NotTo(HaveOccurred())
		Expect(told).To(Equal([]string{registered + "webhook"}))
		<-time.After(time.Minute)

		webhooks.changed, policies.changed, policies.err = false, true, nil
		told, again, err = ensure(t, a, "auto")
		Expect(err).NotTo(HaveOccurred())
		Expect(told).To(Equal([]string{registered + "policy"}))
		Expect(again).To(Equal(10 * time.Second))
		Expect(webhooks.removed).To(BeZero())
		policies.changed = false
		<-time.After(again)
		_, _, err = ensure(t, a, "auto")
		Expect(err).NotTo(HaveOccurred())
		Expect(webhooks.removed).To(Equal(1))

		for _, refusal := range []error{unserved, apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", errors.New("no rights"))} {
			for _, both := range []error{nil, refusal} {
				policies.err, webhooks.err = refusal, both
				_, _, err = ensure(t, a, "auto")
				Expect(err).NotTo(HaveOccurred())
				<-time.After(time.Minute)
			}
		}
		Expect(policies.removed + webhooks.removed).To(Equal(1))
	})
}

// Warnings of an API server are not logged: they may contain any text.
func TestWarningsAreNotLogged(t *testing.T) {
	var logged []string
	ctx := ctrl.LoggerInto(t.Context(), funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}))
	server := servesText(t, http.StatusOK, `{"apiVersion": "v1", "kind": "ConfigMap"}`)
	a := &workload.Admission{Ways: map[string]workload.Way{"policy": &asks{}}}
	NewWithT(t).Expect(a.Ensure(ctx, server, cluster, "policy", func(_, _ string) {})).Error().To(Succeed())
	NewWithT(t).Expect(logged).To(BeEmpty())
}

// asks is a way that sends a request to the API server.
type asks struct{ answer }

func (*asks) Ensure(ctx context.Context, server client.Client, _ webhook.Identity) (bool, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	return false, server.Get(ctx, types.NamespacedName{Namespace: "ns", Name: "x"}, object)
}

// servesText returns a client of a server that redirects to a second server. The second server returns the code and the text, with a
// warning.
func servesText(t *testing.T, code int, text string) client.Client {
	t.Helper()
	internal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Warning", `299 - "beware"`)
		w.WriteHeader(code)
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(internal.Close)
	server := httptest.NewServer(http.RedirectHandler(internal.URL, http.StatusFound))
	t.Cleanup(server.Close)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	c, err := client.New(&rest.Config{Host: server.URL}, client.Options{Mapper: mapper})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

// A text that another server returns through a workload cluster does not reach users who read objects of the management cluster.
func TestNobodyReadsThroughHeirloom(t *testing.T) {
	const silent = "it does not answer like an API server"
	const denied = `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no rights"}`
	for _, tc := range []struct {
		name, text, told string
		code             int
	}{
		{name: "an object of no kind", code: http.StatusOK, text: `{"password": "secret"}`, told: silent},
		{name: "a text", code: http.StatusOK, text: "secret", told: silent},
		{name: "a failure", code: http.StatusInternalServerError, text: "secret", told: silent},
		{name: "a refusal", code: http.StatusForbidden, text: "secret", told: silent},
		{name: "an API server", code: http.StatusForbidden, text: denied, told: "no rights"},
	} {
		for _, way := range []string{"policy", "auto"} {
			t.Run(tc.name+"/"+way, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				var told string
				a := &workload.Admission{Ways: map[string]workload.Way{"policy": &asks{}}}
				_, err := a.Ensure(t.Context(), servesText(t, tc.code, tc.text), cluster, way, func(_, note string) { told = note })
				if way == "policy" {
					Expect(err).To(HaveOccurred())
				}
				Expect(told).To(And(ContainSubstring(tc.told), Not(ContainSubstring("secret"))))
			})
		}
	}
	Expect := NewWithT(t).Expect
	own := webhook.OwnError{Err: errors.New("no key")}
	Expect(workload.Told(fmt.Errorf("x: %w", own))).To(MatchError("x: no key"))
	Expect(workload.Told(errors.Join(own, errors.New("secret")))).To(MatchError("no key\n" + silent))
	Expect(workload.Told(context.DeadlineExceeded)).To(MatchError(context.DeadlineExceeded))
}

// Constant changes of a Cluster or its Machines keep the loop busy with their parameters for at most a tenth of the time.
func TestAClusterRestsAfterItsParametersWereComputed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Expect := NewWithT(t).Expect
		computed, takes := 0, time.Second
		a := &workload.Admission{Ways: map[string]workload.Way{"policy": workload.ByPolicy{
			Policy: func() inherit.Policy { return inherit.Policy{} },
			Machines: func(context.Context, types.NamespacedName, inherit.Policy) ([]inherit.Machine, inherit.Policy, error) {
				computed++
				<-time.After(takes)
				return nil, inherit.Policy{}, apierrors.NewBadRequest("later")
			},
		}}}
		for _, rest := range []time.Duration{10 * time.Second, 30 * time.Second} {
			_, _, err := ensure(t, a, "policy")
			Expect(err).To(MatchError(apierrors.IsBadRequest, "IsBadRequest"))
			before := computed
			for range 100 {
				_, again, err := ensure(t, a, "policy")
				Expect(err).NotTo(HaveOccurred())
				Expect(again).To(Equal(rest))
			}
			Expect(computed).To(Equal(before))
			<-time.After(rest)
			takes = 20 * time.Second
		}
		Expect(computed).To(Equal(2))
		takes = 0
		_, _, err := ensure(t, a, "policy")
		Expect(err).To(HaveOccurred())
		a.Forget(cluster.NamespacedName)
		Expect(computed).To(Equal(3))
	})
}

// The loop follows the Machines if there is a MutatingAdmissionPolicy, or may be.
func TestMachinesAreFollowedForPolicies(t *testing.T) {
	Expect := NewWithT(t).Expect
	object := &metav1.ObjectMeta{Namespace: "ns", Name: "c"}
	policies := &answer{}
	a := &workload.Admission{Default: "auto", Ways: map[string]workload.Way{"policy": policies, "webhook": &answer{}}}
	Expect(a.FollowsMachines(object)).To(BeTrue(), "the way is not known yet")
	Expect(ensure(t, a, "auto")).Error().To(Succeed())
	Expect(a.FollowsMachines(object)).To(BeTrue())
	policies.err = unserved
	Expect(ensure(t, a, "auto")).Error().To(Succeed())
	Expect(a.FollowsMachines(object)).To(BeFalse())
	a.Forget(cluster.NamespacedName)
	Expect(a.FollowsMachines(object)).To(BeTrue(), "a new Cluster with this name is not known")
	object.Labels = map[string]string{inherit.AdmissionLabel: "none"}
	Expect(a.FollowsMachines(object)).To(BeFalse())
	object.Labels[inherit.AdmissionLabel] = "policy"
	Expect(a.FollowsMachines(object)).To(BeTrue())
}
