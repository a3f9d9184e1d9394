// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/workload"
)

// automatically is a loop that chooses by itself how Nodes are admitted; it has a URL for webhooks.
func automatically(t *testing.T) (l *loop, webhook, policy *way, asked *journal) {
	t.Helper()
	l, webhook, policy, asked = admitting(t, theCluster())
	l.Admission.Default = workload.AdmitAutomatically
	return l, webhook, policy, asked
}

var (
	forbidden   = apierrors.NewForbidden(schema.GroupResource{Resource: "policies"}, "x", errors.New("no rights"))
	terminating = func() error {
		err := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("on its way out"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return err
	}()
)

const (
	unserved  = "it serves no policies"
	loopAlone = "Warning WorkloadAdmissionFallback Cluster/c: The loop alone applies what new Nodes inherit, a moment after they register: " +
		"until then Pods can be scheduled that their taints keep away. Label heirloom.dev/workload-admission=none accepts that. "
)

// By itself, the loop takes the best way that a workload cluster can have, and tells where that is none.
func TestTheBestWayIsTaken(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setUp func(l *loop, webhook, policy *way)
		asked []string
		told  []string
		fails error
	}{
		{
			name: "a policy", setUp: func(*loop, *way, *way) {},
			asked: []string{"try policy", "ensure policy in ns/c", "remove webhook from ns/c"},
		},
		{
			name: "a webhook where there are no policies", setUp: func(_ *loop, _, policy *way) { policy.missing = unserved },
			asked: []string{"try webhook", "ensure webhook in ns/c"},
		},
		{
			name: "the loop where there is neither", asked: []string{},
			setUp: func(l *loop, _, policy *way) {
				policy.missing = unserved
				delete(l.Admission.Ways, workload.AdmitByWebhook)
			},
			told: []string{loopAlone + "Not by policy: it serves no policies. Not by webhook: there is no URL for it (--workload-webhook-url)."},
		},
		{
			name: "a webhook where policies are refused", setUp: func(_ *loop, _, policy *way) { policy.refused = forbidden },
			asked: []string{"try policy", "try webhook", "ensure webhook in ns/c"},
			told:  []string{`Warning WorkloadAdmissionFallback Cluster/c: Nodes are admitted by webhook. Not by policy: policies "x" is forbidden: no rights.`},
		},
		{
			name: "a webhook where a part of a policy is refused", setUp: func(_ *loop, _, policy *way) { policy.err = forbidden },
			asked: []string{"try policy", "ensure policy in ns/c", "try webhook", "ensure webhook in ns/c"},
			told:  []string{"Warning WorkloadAdmissionFallback Cluster/c: Nodes are admitted by webhook. Not by policy: "},
		},
		{
			name:  "the loop where all is refused",
			setUp: func(_ *loop, webhook, policy *way) { policy.refused, webhook.err = forbidden, forbidden },
			asked: []string{"try policy", "try webhook", "ensure webhook in ns/c"},
			told:  []string{loopAlone + `Not by policy: policies "x" is forbidden: no rights. Not by webhook: policies "x" is forbidden: no rights.`},
		},
		{
			name: "none while nobody knows which ones there are", setUp: func(_ *loop, _, policy *way) { policy.lost = errors.New("no answer") }, asked: []string{},
			told: []string{"Warning WorkloadAdmissionFailed Cluster/c: "}, fails: errors.New("no answer"),
		},
		{
			name: "none while it cannot be set up", setUp: func(_ *loop, _, policy *way) { policy.err = errors.New("no answer") },
			asked: []string{"try policy", "ensure policy in ns/c"},
			told:  []string{"Warning WorkloadAdmissionFailed Cluster/c: "}, fails: errors.New("no answer"),
		},
		{
			name: "none while a namespace is on its way out", setUp: func(_ *loop, _, policy *way) { policy.err = terminating },
			asked: []string{"try policy", "ensure policy in ns/c"},
			told:  []string{"Warning WorkloadAdmissionFailed Cluster/c: "}, fails: terminating,
		},
		{
			name:  "what an operator says comes first",
			setUp: func(l *loop, _, _ *way) { l.Admission.Default = workload.AdmitByLoop },
			asked: []string{"remove webhook from ns/c", "remove policy from ns/c"},
		},
		{
			name:  "the management cluster has its own webhooks",
			setUp: func(l *loop, _, _ *way) { l.Chain.ManagementCluster = owners.Always(key("c")) },
			asked: []string{"remove webhook from ns/c", "remove policy from ns/c"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, webhook, policy, asked := automatically(t)
			tc.setUp(l, webhook, policy)
			for range 2 { // what is told is told once, what fails is told each time
				err := l.seeWorkload(key("c"))
				if tc.fails == nil {
					l.Expect(err).NotTo(HaveOccurred())
				} else {
					l.Expect(err).To(MatchError(ContainSubstring(tc.fails.Error())))
				}
				if tc.asked != nil {
					l.Expect(append([]string{}, asked.take()...)).To(Equal(tc.asked))
				}
				l.told(tc.told...)
				if tc.fails != nil {
					break
				}
				tc.asked, tc.told = nil, nil
			}
		})
	}
}

// What has been set up is not tried anew with each Machine.
func TestAWayThatIsThereIsNotTriedAgain(t *testing.T) {
	l, _, policy, asked := automatically(t)
	l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	asked.take()
	l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	l.Expect(asked.take()).To(Equal([]string{"ensure policy in ns/c", "remove webhook from ns/c"}))

	policy.err = forbidden
	l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	l.Expect(asked.take()).To(Equal([]string{"ensure policy in ns/c", "try webhook", "ensure webhook in ns/c"}))
	l.Expect(l.seeWorkload(key("c"))).To(Succeed())
	l.Expect(asked.take()).To(Equal([]string{"try policy", "ensure policy in ns/c", "try webhook", "ensure webhook in ns/c"}),
		"one that was refused is")
	l.Expect(l.events.take()).To(HaveLen(1), "and is told once")
}

// An upgrade of the workload cluster makes a better way possible, and so does a URL. The one before goes when API servers have
// heard of it. A way that can be had no longer is left: it would not work when it came back.
func TestNoMomentIsWithoutAWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, webhook, policy, asked := automatically(t)
		policy.missing = unserved
		delete(l.Admission.Ways, workload.AdmitByWebhook)
		l.Expect(l.seeWorkload(key("c"))).To(Succeed())
		l.told(loopAlone)
		l.Admission.Ways[workload.AdmitByWebhook], webhook.changed = webhook, true
		l.Expect(l.seeWorkload(key("c"))).To(Succeed())
		l.told("Normal WorkloadAdmissionRegistered Cluster/c: The workload cluster's API server now admits Nodes by webhook")
		webhook.changed = false
		<-time.After(time.Minute)
		asked.take()

		policy.missing, policy.changed = "", true
		l.Expect(l.seeWorkload(key("c"))).To(Succeed())
		l.told("Normal WorkloadAdmissionRegistered Cluster/c: The workload cluster's API server now admits Nodes by policy")
		l.Expect(asked.take()).To(Equal([]string{"try policy", "ensure policy in ns/c"}))
		policy.changed = false
		l.Expect(l.again).To(Equal(10 * time.Second))
		<-time.After(9 * time.Second)
		l.Expect(l.seeWorkload(key("c"))).To(Succeed(), "a Machine has changed")
		l.Expect(asked.take()).To(Equal([]string{"ensure policy in ns/c"}))
		l.Expect(l.again).To(Equal(time.Second))
		<-time.After(l.again)
		l.Expect(l.seeWorkload(key("c"))).To(Succeed())
		l.Expect(asked.take()).To(Equal([]string{"ensure policy in ns/c", "remove webhook from ns/c"}))
		l.Expect(l.again).To(BeZero())

		policy.missing = unserved
		l.Expect(l.seeWorkload(key("c"))).To(Succeed())
		l.Expect(asked.take()).To(Equal([]string{"try webhook", "ensure webhook in ns/c"}))
		l.told()
	})
}

// Each Machine that changes wakes a Cluster whose Nodes are admitted by policy, and no other.
func TestMachinesWakeClustersThatHavePolicies(t *testing.T) {
	t.Parallel()
	l, f := awake(t)
	l.own.Store(&client.ObjectKey{})
	policy, ok := l.Admission.Ways[workload.AdmitByPolicy].(*way)
	l.Expect(ok).To(BeTrue())
	ensured := func() []string {
		return slices.DeleteFunc(l.asked.all(), func(line string) bool { return !strings.HasPrefix(line, "ensure") })
	}
	for _, c := range []string{"c", "d"} {
		l.asked.take()
		l.change(f[c], func() { f[c].SetLabels(pairs(workload.AdmissionLabel + "=auto")) })
		l.updated(f[c], labelled)
		l.eventually(ensured).Should(ConsistOf("ensure policy in ns/" + c))
	}
	l.eventually(l.asked.all).Should(ContainElement("remove webhook from ns/d"))
	l.asked.take()
	l.updated(f["m-c"], something)
	l.eventually(l.asked.all).Should(Equal([]string{"ensure policy in ns/c", "remove webhook from ns/c"}))

	policy.missing = unserved
	l.asked.take()
	l.updated(f["d"], labelled)
	l.eventually(ensured).Should(ConsistOf("ensure webhook in ns/d"))
	l.asked.take()
	l.updated(f["m-d"], something)
	l.updated(f["c"], labelled)
	l.eventually(ensured).Should(ConsistOf("ensure webhook in ns/c"))
}

// The way by policy tells by the kinds of the API server whether there can be one, and finds out by dry runs whether it may be.
func TestAPolicyIsTried(t *testing.T) {
	Expect := NewWithT(t).Expect
	policy, mapper := workload.ByPolicy{}, meta.NewDefaultRESTMapper(nil)
	mapper.Add(admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"), meta.RESTScopeRoot)
	server := fake.NewClientBuilder().WithRESTMapper(mapper).Build()
	Expect(policy.Missing(server)).To(BeEmpty())
	Expect(policy.Try(t.Context(), server)).To(Succeed())

	older := fake.NewClientBuilder().WithRESTMapper(meta.NewDefaultRESTMapper(nil)).Build()
	Expect(policy.Missing(older)).To(Equal("the workload cluster's API server does not serve MutatingAdmissionPolicies (Kubernetes 1.36 or later does)"))
}
