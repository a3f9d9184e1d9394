// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// configurations returns the webhook configurations of Heirloom and of another product.
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
	saysCleanedUp     = "machine.cluster.x-k8s.io/m cleaned up in namespace ns\n"
	saysCleanedUpDry  = "machine.cluster.x-k8s.io/m cleaned up in namespace ns (dry run)\n  .metadata.labels.team\n"
)

// Webhooks would add removed entries again, so nothing is cleaned up while they exist, unless they are to be deleted.
func TestStoppingTheWebhooks(t *testing.T) {
	for _, tc := range []struct {
		name    string
		options Options
		fail    map[string]error
		writes  []string
		out     string
		problem string
	}{
		{name: "it refuses to begin", problem: `webhook configurations "heirloom" still exist, so objects would inherit removed entries again: ` +
			`delete them, or use --stop`},
		{name: "it deletes them and goes on", options: Options{Stop: true},
			writes: []string{deletesMutating, deletesValidating, "patch Machine m"}, out: saysDeleted + saysCleanedUp},
		{name: "it deletes them and does no more", options: Options{OnlyWebhookConfigurations: true},
			writes: []string{deletesMutating, deletesValidating}, out: saysDeleted},
		{name: "a dry run leaves them and goes on", options: dryRun, out: saysCleanedUpDry},
		{name: "a dry run says that they would go", options: Options{Mode: Mode{DryRun: true}, Stop: true}, out: saysDeletedDry + saysCleanedUpDry},
		{name: "they may not be read", fail: map[string]error{"get ValidatingWebhookConfiguration": forbidden}, options: Options{Stop: true},
			writes: []string{deletesMutating}, out: saysDeleted[:len(saysDeleted)/2], problem: "looking for Heirloom's webhook configurations: "},
		{name: "they may not be deleted", fail: map[string]error{"delete MutatingWebhookConfiguration": forbidden}, options: Options{Stop: true},
			problem: "forbidden"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				management := holds(served, append(configurations(), teamed(t, core, "Machine", "m"))...)
				for request, err := range tc.fail {
					management.fail[request] = err
				}
				r := cleaning(management, tc.options)
				err := r.Run(t.Context())
				if tc.problem == "" {
					Expect(err).NotTo(HaveOccurred())
					Expect(r.out.String()).To(Equal(tc.out))
				} else {
					Expect(err).To(MatchError(ContainSubstring(tc.problem)))
				}
				Expect(management.written()).To(Equal(tc.writes))
			})
		})
	}
}

// heldBy returns the Lease of a leader that has renewed it this long ago, for 15 seconds.
func heldBy(leader string, renewed time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "heirloom-system", Name: "leader-election-heirloom"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &leader, LeaseDurationSeconds: ptr.To(int32(15)), RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(-renewed))),
	}}
}

// deployment returns Heirloom's Deployment, with two replicas.
func deployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "heirloom-system", Name: "heirloom"}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(2))}}
}

// leads gives the Lease to a holder who renewed it this long ago by its own clock.
func (s *apiServer) leads(t *testing.T, who string, renewed time.Duration) {
	t.Helper()
	lease, now := heldBy("", 0), heldBy(who, renewed)
	NewWithT(t).Expect(s.others.Get(t.Context(), client.ObjectKeyFromObject(lease), lease)).To(Succeed())
	lease.Spec = now.Spec
	NewWithT(t).Expect(s.others.Update(t.Context(), lease)).To(Succeed())
}

// Without --stop, nothing is cleaned up while there is a leader.
func TestWhileSomebodyLeads(t *testing.T) {
	for _, tc := range []struct {
		name    string
		lease   func() client.Object
		options Options
		fail    error
		writes  []string
		problem string
	}{
		{name: "it refuses to begin", lease: func() client.Object { return heldBy("pod", time.Second) },
			problem: "pod leads Heirloom, so objects would inherit removed entries again: scale its Deployment to 0 and wait until its Pods are gone, or use --stop"},
		{name: "a dry run does not mind", lease: func() client.Object { return heldBy("pod", time.Second) }, options: dryRun},
		{name: "nor one that would stop it", lease: func() client.Object { return heldBy("pod", time.Second) }, options: Options{Mode: Mode{DryRun: true}, Stop: true}},
		{name: "a leader that is gone does not matter", lease: func() client.Object { return heldBy("pod", time.Minute) }, writes: []string{"patch Machine m"}},
		{name: "nor one that has given the Lease back", lease: func() client.Object { return heldBy("", time.Second) }, writes: []string{"patch Machine m"}},
		{name: "nor where nobody has ever led", lease: func() client.Object { return deployment() }, writes: []string{"patch Machine m"}},
		{name: "it must be known", lease: func() client.Object { return heldBy("", time.Second) }, fail: forbidden,
			problem: "reading the Lease heirloom-system/leader-election-heirloom of Heirloom's leader: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			management := holds(served, tc.lease(), teamed(t, core, "Machine", "m"))
			management.fail["get Lease"] = tc.fail
			err := cleaning(management, tc.options).Run(t.Context())
			if tc.problem == "" {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			}
			Expect(management.written()).To(Equal(tc.writes))
		})
	}
}

// With --stop, the Deployment is scaled to zero, and nothing is cleaned up before there has been no leader for five seconds.
func TestStoppingTheLoop(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct {
		name  string
		lease func() *coordinationv1.Lease
		// then holds changes of the Lease by the time after the Deployment was scaled: a new holder and renew time.
		then    map[time.Duration]func(*apiServer, *testing.T)
		cleaned time.Duration
		writes  []string
	}{
		{name: "it was stopped before", lease: func() *coordinationv1.Lease { return heldBy("", time.Hour) }, cleaned: 6 * s},
		{name: "the leader gives the Lease back", lease: func() *coordinationv1.Lease { return heldBy("a", s) }, cleaned: 16 * s,
			then: map[time.Duration]func(*apiServer, *testing.T){10*s - 1: func(m *apiServer, t *testing.T) { m.leads(t, "", 0) }}},
		{name: "the leader dies", lease: func() *coordinationv1.Lease { return heldBy("a", 2*s) }, cleaned: 18 * s},
		{name: "another replica leads for a moment", lease: func() *coordinationv1.Lease { return heldBy("a", s) }, cleaned: 19 * s,
			then: map[time.Duration]func(*apiServer, *testing.T){
				8*s - 1:  func(m *apiServer, t *testing.T) { m.leads(t, "", 0) },
				11*s - 1: func(m *apiServer, t *testing.T) { m.leads(t, "b", 0) },
				13*s - 1: func(m *apiServer, t *testing.T) { m.leads(t, "", 0) },
			}},
		{name: "the leader's clock is behind", lease: func() *coordinationv1.Lease { return heldBy("a", time.Hour) }, cleaned: 12 * s,
			then: map[time.Duration]func(*apiServer, *testing.T){
				2*s - 1: func(m *apiServer, t *testing.T) { m.leads(t, "a", time.Hour) },
				4*s - 1: func(m *apiServer, t *testing.T) { m.leads(t, "a", time.Hour) },
				6*s - 1: func(m *apiServer, t *testing.T) { m.leads(t, "a", time.Hour) },
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				management := holds(served, tc.lease(), deployment(), teamed(t, core, "Machine", "m"))
				begun := time.Now()
				for after, then := range tc.then {
					time.AfterFunc(after, func() { then(management, t) })
				}
				var cleaned time.Duration
				management.before["patch Machine"] = func() { cleaned = time.Since(begun) }
				r := cleaning(management, Options{Stop: true})
				Expect(r.Run(t.Context())).To(Succeed(), r.progress.String())
				Expect(cleaned).To(Equal(tc.cleaned))
				Expect(management.written()).To(Equal([]string{"scale Deployment heirloom", "patch Machine m"}))
				Expect(r.progress.String()).To(ContainSubstring("Deployment heirloom-system/heirloom is scaled to 0; waiting for the loop to stop\n"))
				scaled := deployment()
				Expect(management.others.Get(t.Context(), client.ObjectKeyFromObject(scaled), scaled)).To(Succeed())
				Expect(scaled.Spec.Replicas).To(HaveValue(BeZero()))
			})
		})
	}
}

func TestUnstoppableLoopStopsACleanup(t *testing.T) {
	for _, tc := range []struct {
		name    string
		objects []client.Object
		fails   string
		takes   time.Duration
		problem string
	}{
		{name: "something scales it up again", objects: []client.Object{deployment()}, takes: 2 * time.Minute,
			problem: "pod still leads Heirloom after 2m0s: check whether a controller scales Deployment heirloom-system/heirloom up again, or Heirloom also runs elsewhere"},
		{name: "it has no Deployment", takes: 2 * time.Minute, problem: "pod still leads Heirloom after 2m0s: "},
		{name: "the Deployment may not be scaled", objects: []client.Object{deployment()}, fails: "scale Deployment",
			problem: "scaling Deployment heirloom-system/heirloom to 0: "},
		{name: "the Lease may not be read", objects: []client.Object{deployment()}, fails: "get Lease", problem: "reading the Lease "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				management := holds(served, append(tc.objects, heldBy("pod", -time.Hour) /* for an hour to come */, teamed(t, core, "Machine", "m"))...)
				management.fail[tc.fails] = forbidden
				begun := time.Now()
				err := cleaning(management, Options{Stop: true}).Run(t.Context())
				Expect(err).To(MatchError(ContainSubstring(tc.problem)))
				Expect(time.Since(begun)).To(Equal(tc.takes))
				Expect(management.written()).NotTo(ContainElement("patch Machine m"))
			})
		})
	}
}

// If there was a leader in the meantime, removed entries may be inherited again. The run returns an error.
func TestLoopStartsDuringACleanup(t *testing.T) {
	for _, stop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			management := holds(served, deployment(), heldBy("", time.Hour), teamed(t, core, "Machine", "m"), keys(key))
			management.before["patch Machine"] = func() {
				management.leads(t, "pod", 0)
				management.leads(t, "", 0)
			}
			r := fleet{management: management}.run(Options{Stop: stop})
			Expect(r.Run(t.Context())).To(MatchError(And(HavePrefix("not everything could be cleaned up; fix these errors, and run it again:\n"),
				ContainSubstring("the leader's Lease has changed: Heirloom ran meanwhile, and objects may have inherited removed entries again"))))
		})
	}
}
